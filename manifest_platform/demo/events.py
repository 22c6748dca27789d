"""Enriched runs of an invented web shop, in the real format of Snowplow. The same seed gives the same bytes.

Belongs here: the events and their entities, good ones and deliberately bad ones. The schemas of the entities are in `SCHEMAS`.
"""

from __future__ import annotations

import gzip as gz
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson

from manifest_platform import storage

SCHEMAS = Path(__file__).parent / "schemas"
"""The Iglu schemas of the shop's own entities, as `<vendor>/<name>/jsonschema/<version>`."""

WINDOW = timedelta(minutes=10)
"""The time span of a run: the events of a run were received within this span, which ends at the run's time."""

_LINE = (
    "app_id platform etl_tstamp collector_tstamp dvce_created_tstamp event event_id txn_id name_tracker v_tracker "
    "v_collector v_etl user_id user_ipaddress user_fingerprint domain_userid domain_sessionidx network_userid "
    "geo_country geo_region geo_city geo_zipcode geo_latitude geo_longitude geo_region_name ip_isp ip_organization "
    "ip_domain ip_netspeed page_url page_title page_referrer page_urlscheme page_urlhost page_urlport page_urlpath "
    "page_urlquery page_urlfragment refr_urlscheme refr_urlhost refr_urlport refr_urlpath refr_urlquery "
    "refr_urlfragment refr_medium refr_source refr_term mkt_medium mkt_source mkt_term mkt_content mkt_campaign "
    "contexts se_category se_action se_label se_property se_value unstruct_event tr_orderid tr_affiliation tr_total "
    "tr_tax tr_shipping tr_city tr_state tr_country ti_orderid ti_sku ti_name ti_category ti_price ti_quantity "
    "pp_xoffset_min pp_xoffset_max pp_yoffset_min pp_yoffset_max useragent br_name br_family br_version br_type "
    "br_renderengine br_lang br_features_pdf br_features_flash br_features_java br_features_director "
    "br_features_quicktime br_features_realplayer br_features_windowsmedia br_features_gears br_features_silverlight "
    "br_cookies br_colordepth br_viewwidth br_viewheight os_name os_family os_manufacturer os_timezone dvce_type "
    "dvce_ismobile dvce_screenwidth dvce_screenheight doc_charset doc_width doc_height tr_currency tr_total_base "
    "tr_tax_base tr_shipping_base ti_currency ti_price_base base_currency geo_timezone mkt_clickid mkt_network "
    "etl_tags dvce_sent_tstamp refr_domain_userid refr_dvce_tstamp derived_contexts domain_sessionid derived_tstamp "
    "event_vendor event_name event_format event_version event_fingerprint true_tstamp"
)
FIELDS: tuple[str, ...] = tuple(_LINE.split())
"""The names of an enriched event's fields, in the order of a line."""

_AT: dict[str, int] = {name: index for index, name in enumerate(FIELDS)}

_SHOP = "https://shop.acme.example"
_PAGES = (  # path, title, kind
    ("/", "Acme", "home"),
    ("/tools", "Tools", "list"),
    ("/garden", "Garden", "list"),
    ("/tools/anvil", "Anvil", "product"),
    ("/tools/rope", "Rope, 20 m", "product"),
    ("/garden/birdseed", "Birdseed", "product"),
    ("/stories/desert", "Crossing the desert — on foot", "article"),
)
_PRODUCTS = (  # sku, name, price, weight
    ("AN-100", "Anvil", 129.95, 45.5),
    ("RO-020", "Rope, 20 m", 24.5, 1.8),
    ("BS-001", "Birdseed “Free”", 3.99, 0.5),
    ("MG-007", "Magnet", 59.0, None),
)
_CITIES = (  # country, region, city, zip code, latitude, longitude, time zone, language
    ("DE", "BE", "Berlin", "10115", "52.5321", "13.3849", "Europe/Berlin", "de-DE"),
    ("GB", "ENG", "London", "EC1A", "51.5186", "-0.1011", "Europe/London", "en-GB"),
    ("US", "CA", "San Francisco", "94103", "37.7725", "-122.4147", "America/Los_Angeles", "en-US"),
    ("JP", "13", "Tokyo", "100-0001", "35.6837", "139.7544", "Asia/Tokyo", "ja-JP"),
    ("BR", "SP", "São Paulo", "01000", "-23.5475", "-46.6361", "America/Sao_Paulo", "pt-BR"),
)
_DEVICES = (  # class, user agent, browser, version, engine, system, maker, width, height
    (
        "desktop",
        "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/124.0.0.0 Safari/537.36",
        *("Chrome", "124.0.0.0", "BLINK", "Windows", "Microsoft", 1920, 1080),
    ),
    (
        "desktop",
        "Mozilla/5.0 (X11; Linux x86_64; rv:125.0) Gecko/20100101 Firefox/125.0",
        *("Firefox", "125.0", "GECKO", "Linux", "Other", 2560, 1440),
    ),
    (
        "phone",
        "Mozilla/5.0 (iPhone; CPU iPhone OS 17_4 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.4 "
        "Mobile/15E148 Safari/604.1",
        *("Safari", "17.4", "WEBKIT", "iOS", "Apple Inc.", 390, 844),
    ),
)
_REFERRERS = (  # url, medium, source
    ("", "", ""),
    ("https://www.google.com/", "search", "Google"),
    ("https://news.example/today?edition=morning", "unknown", ""),
)
_USERS = 2_000
_EVENTS = ("page_ping", "page_ping", "page_view", "struct", "link_click", "add_to_cart")  # after the first page view
_VENDORS = {
    "page_view": ("page_view", "com.snowplowanalytics.snowplow", "page_view"),
    "page_ping": ("page_ping", "com.snowplowanalytics.snowplow", "page_ping"),
    "struct": ("struct", "com.google.analytics", "event"),
    "link_click": ("unstruct", "com.acme", "link_click"),
    "add_to_cart": ("unstruct", "com.acme", "add_to_cart"),
}


@dataclass(frozen=True)
class WrittenRun:
    """A run that was written: its URI, and the numbers of good and bad lines."""

    uri: str
    good: int
    bad: int


def write_run(
    root: str | Path,
    run_time: datetime,
    events: int,
    seed: int,
    *,
    bad_lines: int = 0,
    corrupt: bool = False,
    evolved: bool = True,
    gzip: bool = False,
    parts: int = 1,
    resent: int = 0,
    taken_ids: int = 0,
) -> WrittenRun:
    """Writes a run into a root, its marker `_SUCCESS` last. The same arguments give the same bytes.

    `run_time`: in UTC, whole seconds. `events`: the number of events; `bad_lines`: the number of additional broken lines, of
    every kind in turn. `corrupt`: also breaks nine of ten events. `evolved`: uses all versions of the schemas, instead of the
    first versions only. `parts`: the number of files. Event ids are unique, also across run times and seeds, but for those of
    duplicates: of the events, `resent` are copies of others, and `taken_ids` differ from others but have their ids.
    """
    name = f"run={run_time:%Y-%m-%d-%H-%M-%S}"
    uri = storage.as_uri(f"{root}/{name}")
    rng = random.Random(f"{seed} {name}")  # noqa: S311
    shop = _with_duplicates(_events(rng, run_time.replace(tzinfo=None), evolved), resent, taken_ids)
    broken = 0
    for part in range(parts):
        lines = []
        for fields in islice(shop, _share(events, parts, part)):
            if corrupt and len(lines) % 10:
                lines.append(_BREAKERS[broken % len(_BREAKERS)](fields))
                broken += 1
            else:
                lines.append("\t".join(fields))
        for fields in islice(shop, _share(bad_lines, parts, part)):
            lines.insert(rng.randrange(len(lines) + 1), _BREAKERS[broken % len(_BREAKERS)](fields))
            broken += 1
        text = "".join(f"{line}\n" for line in lines).encode()
        if gzip:
            _write(f"{uri}/part-{part:05}.tsv.gz", gz.compress(text, 6, mtime=0))
        else:
            _write(f"{uri}/part-{part:05}.tsv", text)
    _write(f"{uri}/_SUCCESS", b"")
    return WrittenRun(uri, events + bad_lines - broken, broken)


def _share(count: int, parts: int, part: int) -> int:
    return count // parts + (part < count % parts)


def _write(uri: str, data: bytes) -> None:
    system, path = storage.filesystem(uri)
    if storage.is_local(uri):
        os.makedirs(os.path.dirname(path), exist_ok=True)
    with system.open_output_stream(path, compression=None) as stream:
        stream.write(data)


def _events(rng: random.Random, end: datetime, evolved: bool) -> Iterator[list[str]]:
    """Yields the fields of events without end: visit after visit, each with some events in the window before `end`."""
    etl = _timestamp(end + timedelta(seconds=rng.randrange(5, 60), milliseconds=rng.randrange(1000)))
    while True:
        new_versions = evolved and rng.random() < 0.5
        visitor = _visitor(rng.randrange(_USERS))
        visit = visitor.fields.copy()
        visit[_AT["etl_tstamp"]] = etl
        _begin_visit(rng, visit, visitor, end)
        user = _user_entity(visitor, new_versions)
        received = end - WINDOW + timedelta(milliseconds=rng.randrange(WINDOW // timedelta(milliseconds=1)))
        kind = "page_view"
        for _ in range(1 + int(rng.expovariate(0.15))):
            if kind == "page_view":
                _open_page(rng, visit, user)
            fields = visit.copy()
            _happen(rng, fields, kind, received, new_versions)
            yield fields
            received += timedelta(milliseconds=rng.randrange(100, 20_000))
            if received >= end:
                break
            kind = _EVENTS[rng.randrange(len(_EVENTS))]


def _with_duplicates(events: Iterator[list[str]], resent: int, taken_ids: int) -> Iterator[list[str]]:
    """Yields events, some of them again, and some with the ids of others; without these numbers, the events as they are."""
    first = list(islice(events, resent + taken_ids))
    yield from first
    yield from first[:resent]
    for original, other in zip(first[resent:], events, strict=False):
        _set(other, event_id=original[_AT["event_id"]])
        yield other
    yield from events


@dataclass(frozen=True)
class _Visitor:
    fields: list[str]
    tier: str
    language: str
    device: str


@cache
def _visitor(number: int) -> _Visitor:
    """A visitor of the shop, with the same properties in every run."""
    rng = random.Random(number)  # noqa: S311
    country, region, city, zip_code, latitude, longitude, zone, language = rng.choice(_CITIES)
    device, agent, browser, version, engine, system, maker, width, height = rng.choice(_DEVICES)
    fields = [""] * len(FIELDS)
    _set(
        fields,
        app_id="shop",
        platform="web",
        name_tracker="sp",
        v_tracker="js-3.23.0",
        v_collector="ssc-3.1.0-kinesis",
        v_etl="enrich-kinesis-4.2.0",
        user_id=f"customer-{number}" if number % 3 else "",
        user_ipaddress=f"203.0.113.{rng.randrange(256)}",
        domain_userid=_uuid(rng),
        network_userid=_uuid(rng),
        geo_country=country,
        geo_region=region,
        geo_city=city,
        geo_zipcode=zip_code,
        geo_latitude=latitude,
        geo_longitude=longitude,
        geo_timezone=zone,
        useragent=agent,
        br_name=browser,
        br_family=browser,
        br_version=version,
        br_type="Browser",
        br_renderengine=engine,
        br_lang=language,
        br_cookies="1",
        br_colordepth="24",
        br_viewwidth=str(width),
        br_viewheight=str(height - 100),
        os_name=system,
        os_family=system,
        os_manufacturer=maker,
        os_timezone=zone,
        dvce_type="Mobile" if device == "phone" else "Computer",
        dvce_ismobile="1" if device == "phone" else "0",
        dvce_screenwidth=str(width),
        dvce_screenheight=str(height),
        doc_charset="UTF-8",
        doc_width=str(width),
        doc_height=str(2 * height),
    )
    return _Visitor(fields, rng.choice(("free", "plus", "pro")), language, device)


def _begin_visit(rng: random.Random, visit: list[str], visitor: _Visitor, end: datetime) -> None:
    session, index = _uuid(rng), rng.randrange(1, 60)
    referrer, medium, source = rng.choice(_REFERRERS)
    link = urlsplit(referrer)
    _set(
        visit,
        domain_sessionid=session,
        domain_sessionidx=str(index),
        page_referrer=referrer,
        refr_urlscheme=link.scheme,
        refr_urlhost=link.netloc,
        refr_urlport="443" if referrer else "",
        refr_urlpath=link.path,
        refr_urlquery=link.query,
        refr_medium=medium,
        refr_source=source,
        derived_contexts=_wrapped(
            "contexts",
            [
                _entity(
                    "session/jsonschema/1-0-0",
                    sessionId=session,
                    sessionIndex=index,
                    startedAt=f"{(end - WINDOW).isoformat()}Z",
                    device={
                        "class": visitor.device,
                        "memoryGb": rng.choice((None, 0.5, 4, 8)),
                        "touch": visitor.device == "phone",
                    },
                    previousSessionId=None if index == 1 else _uuid(rng),
                )
            ],
        ),
    )
    if rng.random() < 0.2:
        _set(visit, mkt_medium="cpc", mkt_source="google", mkt_campaign="spring sale", mkt_clickid=_uuid(rng))


def _user_entity(visitor: _Visitor, new_version: bool) -> dict[str, Any] | None:
    if not visitor.fields[_AT["user_id"]]:
        return None
    first = {"tier": visitor.tier, "signedUpAt": "2023-04-01T09:30:00.000Z", "newsletter": visitor.tier == "free"}
    if not new_version:
        return _entity("user/jsonschema/1-0-0", **first)
    preferences = {"language": visitor.language, "darkMode": visitor.device == "phone"}
    return _entity("user/jsonschema/1-1-0", **first, loyaltyPoints=len(visitor.tier) * 250, preferences=preferences)


def _open_page(rng: random.Random, visit: list[str], user: dict[str, Any] | None) -> None:
    path, title, kind = rng.choice(_PAGES)
    article = kind == "article"
    entities = [
        _entity(
            "page/jsonschema/1-0-0",
            id=_uuid(rng),
            kind=kind,
            publishedOn="2024-02-29" if article else None,
            tags=["travel", "heat"] if article else [],
            wordCount=1_250 if article else None,
        )
    ]
    if user is not None:
        entities.append(user)
    if kind in ("list", "product"):
        shown = [
            {"sku": sku, "name": name, "price": price, "weightKg": weight}
            for sku, name, price, weight in rng.sample(_PRODUCTS, 3 if kind == "list" else 1)
        ]
        highest = max(price for _, _, price, _ in _PRODUCTS)
        rating = rng.choice((None, 4, 4.5))
        entities.append(_entity("product_list/jsonschema/1-0-0", products=shown, highestPrice=highest, averageRating=rating))
    page = urlsplit(_SHOP)
    _set(
        visit,
        page_url=f"{_SHOP}{path}?lang=en",
        page_title=title,
        page_urlscheme=page.scheme,
        page_urlhost=page.netloc,
        page_urlport="443",
        page_urlpath=path,
        page_urlquery="lang=en",
        contexts=_wrapped("contexts", entities),
    )


def _happen(rng: random.Random, fields: list[str], kind: str, received: datetime, new_version: bool) -> None:
    """Sets the fields of a visit to those of one event."""
    waited = timedelta(hours=rng.randrange(1, 48)) if rng.random() < 0.01 else timedelta()
    waited += timedelta(milliseconds=rng.randrange(20, 1_500))
    sent = received + timedelta(milliseconds=rng.randrange(-2_000, 2_000))  # by a clock that is not the collector's
    event, vendor, name = _VENDORS[kind]
    version = "1-0-1" if kind == "link_click" and new_version else "1-0-0"
    _set(
        fields,
        collector_tstamp=_timestamp(received),
        dvce_created_tstamp=_timestamp(sent - waited),
        dvce_sent_tstamp=_timestamp(sent),
        derived_tstamp=_timestamp(received - waited),
        event=event,
        event_id=_uuid(rng),
        event_vendor=vendor,
        event_name=name,
        event_format="jsonschema",
        event_version=version,
        event_fingerprint=f"{rng.getrandbits(128):032x}",
    )
    if kind == "page_ping":
        reached = rng.randrange(1_500)
        _set(fields, pp_xoffset_min="0", pp_xoffset_max="0", pp_yoffset_min="0", pp_yoffset_max=str(reached))
    elif kind == "struct":
        _set(fields, se_category="search", se_action="typed", se_label=rng.choice(("rope", "anvil", "magnet")))
        _set(fields, se_value=str(rng.randrange(100) / 4))
    elif kind == "link_click":
        data: dict[str, Any] = {
            "targetUrl": f"{_SHOP}{rng.choice(_PAGES)[0]}",
            "elementId": rng.choice((None, "menu", "teaser")),
            "elementClasses": ["link", "external"],
        }
        if new_version:
            data |= {"elementContent": "Read more", "opensNewTab": rng.random() < 0.5}
        entity = _entity(f"link_click/jsonschema/{version}", **data)
        _set(fields, unstruct_event=_wrapped("unstruct_event", entity))
    elif kind == "add_to_cart":
        sku, _, price, _ = rng.choice(_PRODUCTS)
        entity = _entity(
            "add_to_cart/jsonschema/1-0-0",
            sku=sku,
            quantity=rng.randrange(1, 5),
            unitPrice=price,
            currency="EUR",
            discount={"code": "SPRING", "percent": 12.5} if rng.random() < 0.3 else None,
            options=rng.sample(("gift wrap", "express", "insured"), rng.randrange(3)),
        )
        _set(fields, unstruct_event=_wrapped("unstruct_event", entity))


def _set(fields: list[str], **values: str) -> None:
    for name, value in values.items():
        fields[_AT[name]] = value


def _entity(schema: str, **data: Any) -> dict[str, Any]:
    return {"schema": f"iglu:com.acme/{schema}", "data": data}


def _wrapped(wrapper: str, data: Any) -> str:
    schema = f"iglu:com.snowplowanalytics.snowplow/{wrapper}/jsonschema/1-0-0"
    return orjson.dumps({"schema": schema, "data": data}).decode()


def _uuid(rng: random.Random) -> str:
    digits = f"{rng.getrandbits(128):032x}"  # uuid.UUID takes four times as long
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"


def _timestamp(time: datetime) -> str:
    return time.isoformat(" ", "milliseconds")


def _with(field: str, change: Callable[[str], str]) -> Callable[[list[str]], str]:
    """Returns a function that breaks an event by changing one field."""
    at = _AT[field]
    return lambda fields: "\t".join([*fields[:at], change(fields[at]), *fields[at + 1 :]])


_BREAKERS: tuple[Callable[[list[str]], str], ...] = (
    lambda fields: "\t".join(fields[:-2]),
    lambda fields: " ".join(fields),
    _with("collector_tstamp", lambda time: f"{time[:5]}13-45 25:61:00"),
    _with("event_id", lambda _: ""),
    _with("contexts", lambda text: text.replace("com.acme/page/", "com.acme/unheard_of/")),
    _with("contexts", lambda text: text.replace('"tags":', '"tags":7,"labels":')),
    _with("contexts", lambda text: text[:-2]),
)
"""The ways to break an event: few fields, no tabs, invalid time, no id, unknown schema, invalid entity, broken JSON."""
