"""The registries that a dataset's settings name, and those of Snowplow's own file of its resolver's configuration."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from manifest_platform import masking, storage
from manifest_platform.sources.snowplow.schemas.cache import Cache, shared_folder
from manifest_platform.sources.snowplow.schemas.contract import RegistryRefused
from manifest_platform.sources.snowplow.schemas.registry import Place
from manifest_platform.sources.snowplow.schemas.settings import OVERHEARD, has_credentials, is_http, is_overheard
from manifest_platform.sources.snowplow.settings import SnowplowShredSettings

_RESOLVER = "iglu:com.snowplowanalytics.iglu/resolver-config/jsonschema/1-"


def places(settings: SnowplowShredSettings) -> list[Place]:
    """Returns the registries, with their keys from the environment. Raises RegistryRefused, UnusableSecret."""
    kept = settings.registry_cache
    cache = Cache(shared_folder(), kept.seconds, kept.missing_seconds, kept.stale_hours * 3_600)
    special = {one.url: one for one in settings.registries}
    found: list[Place] = []
    for location in settings.schemas:
        own = special.get(location)
        if own is None:
            found.append(Place(location, cache=cache))
            continue
        key = masking.secret(own.apikey_variable, in_header=True) if own.apikey_variable else None
        if own.apikey_variable and not key:
            raise RegistryRefused(f"the key of registry {own.url} is not set: put it into the variable {own.apikey_variable}")
        found.append(Place(location, key, 403 in own.absent, own.prefixes, own.priority, cache))
    return [*found, *(_of_resolver(settings.resolver, cache) if settings.resolver else ())]


def _of_resolver(location: str, cache: Cache) -> Iterator[Place]:
    """Yields the registries over HTTP of a resolver's configuration. Registries within a program's JAR are left out."""
    try:
        document = orjson.loads(storage.read_bytes(storage.as_uri(location)))
    except (OSError, orjson.JSONDecodeError) as error:
        raise RegistryRefused(f"shred.resolver: {location} cannot be read: {error}") from error
    repositories = document.get("data", {}).get("repositories") if isinstance(document, dict) else None
    if not isinstance(repositories, list) or not str(document.get("schema")).startswith(_RESOLVER):
        raise RegistryRefused(
            f"shred.resolver: {location} is no configuration of a resolver; its schema must be {_RESOLVER}0-*"
        )
    for number, one in enumerate(repositories, start=1):
        try:
            http = one["connection"].get("http")
            if http:
                yield _place(http, tuple(one["vendorPrefixes"]), int(one["priority"]), cache)
        except (KeyError, TypeError, AttributeError, ValueError):
            raise RegistryRefused(
                f"shred.resolver: {location}: repository {number} lacks a connection, a priority or vendor prefixes, or its URL"
                f" cannot be used: {OVERHEARD}"
            ) from None


def _place(http: dict[str, Any], prefixes: tuple[str, ...], priority: int, cache: Cache) -> Place:
    uri, key = str(http["uri"]), http.get("apikey")
    if not is_http(uri) or (is_overheard(uri) and (key or has_credentials(uri))):
        raise ValueError
    masking.keep(key)
    return Place(uri, key, prefixes=tuple(filter(None, prefixes)), priority=priority, cache=cache)
