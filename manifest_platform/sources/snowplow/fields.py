"""The fields of an enriched event, in the order of its line: names, types, and whether a field must not be empty."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from manifest_platform.listing import Column


@dataclass(frozen=True)
class Field:
    """A field of an event: its name, its type, and whether it must not be empty.

    Types are those of a listing column, and `uuid`, `contexts` (a JSON array of entities in its wrapper) and `self-describing`
    (one entity in its wrapper).
    """

    name: str
    type: str
    required: bool = False

    @property
    def is_json(self) -> bool:
        """True if the field holds entities, and so is not a column of the events table."""
        return self.type in ("contexts", "self-describing")

    @cached_property
    def column(self) -> Column:
        """The column of the events table that holds the field."""
        return Column(self.name, "string(36)" if self.type == "uuid" else self.type, nullable=not self.required)


def _field(line: str) -> Field:
    name, type_, *required = line.split()
    return Field(name, type_, bool(required))


FIELDS: tuple[Field, ...] = tuple(
    _field(line)
    for line in """
    app_id string(255)
    platform string(255)
    etl_tstamp timestamp
    collector_tstamp timestamp required
    dvce_created_tstamp timestamp
    event string(128)
    event_id uuid required
    txn_id integer
    name_tracker string(128)
    v_tracker string(100)
    v_collector string(100) required
    v_etl string(100) required
    user_id string(255)
    user_ipaddress string(128)
    user_fingerprint string(128)
    domain_userid string(128)
    domain_sessionidx integer
    network_userid string(128)
    geo_country string(2)
    geo_region string(3)
    geo_city string(75)
    geo_zipcode string(15)
    geo_latitude double
    geo_longitude double
    geo_region_name string(100)
    ip_isp string(100)
    ip_organization string(128)
    ip_domain string(128)
    ip_netspeed string(100)
    page_url string(4096)
    page_title string(2000)
    page_referrer string(4096)
    page_urlscheme string(16)
    page_urlhost string(255)
    page_urlport integer
    page_urlpath string(3000)
    page_urlquery string(6000)
    page_urlfragment string(3000)
    refr_urlscheme string(16)
    refr_urlhost string(255)
    refr_urlport integer
    refr_urlpath string(6000)
    refr_urlquery string(6000)
    refr_urlfragment string(3000)
    refr_medium string(25)
    refr_source string(50)
    refr_term string(255)
    mkt_medium string(255)
    mkt_source string(255)
    mkt_term string(255)
    mkt_content string(500)
    mkt_campaign string(255)
    contexts contexts
    se_category string(1000)
    se_action string(1000)
    se_label string(4096)
    se_property string(1000)
    se_value double
    unstruct_event self-describing
    tr_orderid string(255)
    tr_affiliation string(255)
    tr_total decimal(18,2)
    tr_tax decimal(18,2)
    tr_shipping decimal(18,2)
    tr_city string(255)
    tr_state string(255)
    tr_country string(255)
    ti_orderid string(255)
    ti_sku string(255)
    ti_name string(255)
    ti_category string(255)
    ti_price decimal(18,2)
    ti_quantity integer
    pp_xoffset_min integer
    pp_xoffset_max integer
    pp_yoffset_min integer
    pp_yoffset_max integer
    useragent string(1000)
    br_name string(50)
    br_family string(50)
    br_version string(50)
    br_type string(50)
    br_renderengine string(50)
    br_lang string(255)
    br_features_pdf boolean
    br_features_flash boolean
    br_features_java boolean
    br_features_director boolean
    br_features_quicktime boolean
    br_features_realplayer boolean
    br_features_windowsmedia boolean
    br_features_gears boolean
    br_features_silverlight boolean
    br_cookies boolean
    br_colordepth string(12)
    br_viewwidth integer
    br_viewheight integer
    os_name string(50)
    os_family string(50)
    os_manufacturer string(50)
    os_timezone string(255)
    dvce_type string(50)
    dvce_ismobile boolean
    dvce_screenwidth integer
    dvce_screenheight integer
    doc_charset string(128)
    doc_width integer
    doc_height integer
    tr_currency string(3)
    tr_total_base decimal(18,2)
    tr_tax_base decimal(18,2)
    tr_shipping_base decimal(18,2)
    ti_currency string(3)
    ti_price_base decimal(18,2)
    base_currency string(3)
    geo_timezone string(64)
    mkt_clickid string(128)
    mkt_network string(64)
    etl_tags string(500)
    dvce_sent_tstamp timestamp
    refr_domain_userid string(128)
    refr_dvce_tstamp timestamp
    derived_contexts contexts
    domain_sessionid string(128)
    derived_tstamp timestamp
    event_vendor string(1000)
    event_name string(1000)
    event_format string(128)
    event_version string(128)
    event_fingerprint string(128)
    true_tstamp timestamp
""".strip().splitlines()
)

POSITION = {field.name: position for position, field in enumerate(FIELDS)}
