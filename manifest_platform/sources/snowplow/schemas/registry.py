"""Clients of Iglu registries: folders, and HTTP servers.

A registry is a folder (local or s3://), a static HTTP(S) site or an Iglu server. All have the layout
`schemas/<vendor>/<name>/<format>/<model>-<revision>-<addition>`. The answers of an HTTP server are not trusted:
`RegistryLimits` bounds what is read of them.
"""

from __future__ import annotations

import base64
import contextlib
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

import httpx
import orjson

from manifest_platform import masking, storage
from manifest_platform.shred.batch import SchemaError
from manifest_platform.sources import answers
from manifest_platform.sources.snowplow.schemas.cache import Cache, CachedRegistry
from manifest_platform.sources.snowplow.schemas.contract import Registry, RegistryRefused, RegistryUnavailable
from manifest_platform.sources.snowplow.schemas.folder import FolderRegistry
from manifest_platform.sources.snowplow.schemas.keys import SchemaKey, is_key
from manifest_platform.sources.snowplow.schemas.settings import RegistryLimits, is_http, without_userinfo

ATTEMPTS = 3
SILENCE_SECONDS = 10.0
PAUSE_SECONDS = 0.2

_LITTLE = 1 << 16  # a short answer to a failed call is read to its end, so that the connection can be reused


_HAVE_SERVED: set[str] = set()
"""The HTTP registries that gave this process a schema. If such a registry answers 403, the schema does not exist."""


class HttpRegistry:
    """A static site, or an Iglu server (its URL ends in `/api`).

    A status 4xx means that the schema does not exist, with two exceptions. 401 means that access is refused. 403 is ambiguous:
    static stores send it for missing files, and servers send it to strangers. 403 means that the schema does not exist if the
    registry has given another schema before, or if `forbidden_is_absent` is set. Otherwise it means that access is refused.

    `url` has no user or password, since it appears in messages. `authorization` is the header made of them, and `apikey` the
    key of an Iglu server.

    A redirect is followed within the registry's own scheme, host and port, without these two headers. A schema that is too
    large, or redirected elsewhere, is a SchemaError: only the rows that name it are bad.
    """

    def __init__(
        self,
        url: str,
        authorization: str | None = None,
        apikey: str | None = None,
        forbidden_is_absent: bool = False,
        limits: RegistryLimits | None = None,
    ):
        self.url, self.forbidden_is_absent = url, forbidden_is_absent
        self._limits = limits or RegistryLimits()
        self._secrets = {
            name: value for name, value in (("Authorization", authorization), ("apikey", apikey)) if value is not None
        }
        self._threads = threading.local()
        self._clients: list[answers.Client] = []
        self._lists: bool | None = None  # None: not known yet
        self._listed: dict[str, list[SchemaKey] | None] = {}
        self._has: set[str] = set()  # the models of which it gave a schema
        self._told: dict[SchemaKey, bytes] = {}

    def __repr__(self) -> str:
        return f"HttpRegistry({self.url})"

    def close(self) -> None:
        """Closes the connections."""
        for client in self._clients:
            client.close()

    def _client(self) -> answers.Client:
        """Returns the client of this thread."""
        if not hasattr(self._threads, "client"):
            self._threads.client = answers.Client(SILENCE_SECONDS, SILENCE_SECONDS)
            self._clients.append(self._threads.client)
        return self._threads.client

    def _within(self) -> AbstractContextManager[None]:
        return self._client().within(self._limits.seconds)

    def read(self, key: SchemaKey) -> bytes | None:
        """Returns the text of a schema; None if the site answers that it does not exist.

        A server that has listed the versions of a model is asked for a whole model at once, and not for each schema.
        """
        with self._within():
            if self._lists:
                self._list(key)
            text = self.told(key) or self._get(key.path)
            if text is not None:
                self._has.add(key.family)
            return text

    def versions(self, key: SchemaKey) -> list[SchemaKey]:
        """Returns the versions of the key's model: from the server's list, or else by asking for one version after another."""
        with self._within():
            listed = None if self._lists is False else self._list(key)
            if listed is not None:
                self._lists = True
                return listed
            if self._lists is None and key.family in self._has:
                self._lists = False
            return list(self._successors(key))

    def told(self, key: SchemaKey) -> bytes | None:
        """Returns the text of a schema that an answer brought besides what it was asked for, once."""
        return self._told.pop(key, None)

    def _list(self, key: SchemaKey) -> list[SchemaKey] | None:
        """Returns the versions in the server's list of a model, and keeps the schemas in it; None if there is no list."""
        if key.family not in self._listed:
            path = f"{key.vendor}/{key.name}/{key.format}/{key.model}"
            try:
                found = self._answered_list(self._get(f"{path}?repr=canonical", self._limits.schema_kib << 14))
            except SchemaError:  # more than fits: the names alone
                found = self._answered_list(self._get(path, self._limits.schema_kib << 10))
            self._listed[key.family] = None if found is None else [one for one in found if one.family == key.family]
        return self._listed[key.family]

    def _answered_list(self, answer: bytes | None) -> list[SchemaKey] | None:
        """Returns the keys in a list of keys or of whole schemas; None if an answer is no list."""
        try:
            entries = orjson.loads(answer or b"null")
        except orjson.JSONDecodeError as error:
            if self._lists:
                raise RegistryUnavailable(f"{self.url}: no list came from a server that gave lists before: {error}") from error
            return None
        if not isinstance(entries, list):
            return None
        found = []
        for entry in entries:
            if isinstance(entry, str) and is_key(entry):
                found.append(SchemaKey.parse(entry))
            elif key := _self_described(entry):
                text = orjson.dumps(entry)
                if len(text) <= self._limits.schema_kib << 10:
                    self._told[key] = text
                found.append(key)
        return found

    def keys(self) -> list[SchemaKey] | None:
        """Returns all schemas of an Iglu server; None for a site that gives no list."""
        with self._within():
            try:
                return self._answered_list(self._get("?repr=uri", self._limits.total_mib << 20))
            except SchemaError:
                return None

    def __str__(self) -> str:
        return self.url

    def _successors(self, key: SchemaKey) -> Iterator[SchemaKey]:
        """Yields existing versions by trying numbers in order. Skips a gap below the key itself, because the key exists.

        Raises RegistryRefused if the registry answers every request with success.
        """
        revision = asked = 0
        while True:
            addition = 0
            while True:
                version = SchemaKey(key.vendor, key.name, key.format, key.model, revision, addition)
                asked += 1
                if asked > self._limits.versions:
                    self._check_says_no(key)
                    raise SchemaError(
                        f"{key.family} has more than {self._limits.versions} versions at {self.url}, or wide gaps between"
                        " them; correct them there, or raise shred.registry_limits.versions"
                    )
                text = None if version == key else self._get(version.path)
                if text is not None:
                    self._told[version] = text
                if version == key or text is not None:
                    yield version
                elif version > key or revision < key.revision:
                    break
                addition += 1
            if addition == 0 and revision > key.revision:
                return
            revision += 1

    def _check_says_no(self, key: SchemaKey) -> None:
        nothing = SchemaKey(key.vendor, key.name, key.format, key.model, 999_999_999, 999_999_999)
        if self._get(nothing.path) is not None:
            raise RegistryRefused(
                f"{self.url} answers 200 for {nothing}, which does not exist, so its answers cannot be used: correct the"
                " registry, or its URL in shred.schemas"
            )

    def _get(self, path: str, most: int = 0) -> bytes | None:
        """Returns the answer at a path, of at most `most` bytes, by default a schema's; None if it does not exist."""
        url = f"{self.url}/schemas/{path}".replace("/schemas/?", "/schemas?")
        problem: object = None
        for attempt in range(1, ATTEMPTS + 1):
            if attempt > 1:
                time.sleep(min(PAUSE_SECONDS * 2 ** (attempt - 1), max(0.0, self._client().left())))
            try:
                status, text = self._follow(url, most)
            except httpx.RequestError as error:
                problem = masking.masked(f"{type(error).__name__}: {error}")
            else:
                if status == 200:
                    _HAVE_SERVED.add(self.url)
                    return text
                if 400 <= status < 500 and status not in (408, 429):
                    self._check_access(url, status)
                    return None
                problem = f"HTTP {status}"
            if self._client().left() <= 0:
                problem = f"{problem}; it took longer than shred.registry_limits.seconds, {self._limits.seconds:g} in all"
                break
        raise RegistryUnavailable(f"{url}: {problem} ({attempt} attempts); check that the registry is up, then retry")

    def _follow(self, url: str, most: int) -> tuple[int, bytes]:
        """Returns the status (200 for every success) and the body of an answer. Raises httpx.RequestError, SchemaError."""
        place, headers = url, self._secrets
        for _ in range(self._limits.redirects + 1):
            response = self._client().begin("GET", place, headers=headers)
            try:
                if response.is_redirect:
                    headers = {}
                    place = self._redirected(url, place, response.headers["Location"])
                    continue
                if response.is_success:
                    content = answers.body(response, most or self._limits.schema_kib << 10)
                    if not most and _is_page(response, content):
                        raise httpx.DecodingError("a web page came in place of a schema")
                    return 200, content
                with contextlib.suppress(answers.TooLarge, httpx.RequestError):
                    answers.body(response, _LITTLE)
                return response.status_code, b""
            except answers.TooLarge:
                raise SchemaError(
                    f"{url} has more than {most >> 10 or self._limits.schema_kib} KiB; correct it there, or raise"
                    " shred.registry_limits.schema_kib"
                ) from None
            finally:
                response.close()
        raise self._astray(url, f"leads to more than {self._limits.redirects} redirects", "correct it there")

    def _redirected(self, url: str, place: str, location: str) -> str:
        """Returns the URL that a redirect leads to. Raises SchemaError or RegistryRefused if it is on another server."""
        try:
            to = urljoin(place, location)
            own = answers.origin(to) == answers.origin(self.url)
        except ValueError:
            to, own = location, False
        if not own or not to.isprintable():
            raise self._astray(
                url,
                f"is redirected to another place, {without_userinfo(to)[:200]!a}, and no redirect is followed to another"
                " scheme, host or port",
                "name the place that has the schemas in shred.schemas",
            )
        return to

    def _astray(self, url: str, what: str, helps: str) -> SchemaError | RegistryRefused:
        """Returns the error for a redirect that is not followed.

        If the registry has given a schema before, the error is about this schema only; otherwise, about the whole registry.
        """
        kind = SchemaError if self.url in _HAVE_SERVED else RegistryRefused
        return kind(masking.masked(f"{url} {what}; {helps}"))

    def _check_access(self, url: str, status: int) -> None:
        """Raises RegistryRefused if an answer means that access is refused, not that the schema does not exist."""
        if status == 401:
            how = "is wrong" if self._secrets else "is missing: name its variable in shred.registries"
            raise RegistryRefused(f"{url}: the registry answers 401, so the key {how}; then retry")
        if status == 403 and not self.forbidden_is_absent and self.url not in _HAVE_SERVED:
            raise RegistryRefused(
                f"{url}: the registry answers 403 and has given no schema so far, so it refuses access: allow it, or give a key"
                " in shred.registries; where it answers 403 for what it lacks, write `absent: [403, 404]` there"
            )


def _self_described(document: Any) -> SchemaKey | None:
    """Returns the key that a self-describing schema names; None if it names none."""
    known = document.get("self") if isinstance(document, dict) else None
    if not isinstance(known, dict):
        return None
    text = f"iglu:{'/'.join(str(known.get(part)) for part in ('vendor', 'name', 'format', 'version'))}"
    return SchemaKey.parse(text) if is_key(text) else None


def _is_page(response: httpx.Response, content: bytes) -> bool:
    """True for a page that a person would read: that of a proxy, or of a server in maintenance."""
    kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    return kind in ("text/html", "application/xhtml+xml") and not content.lstrip().startswith(b"{")


@dataclass(frozen=True)
class Place:
    """The location of a registry: a folder, an s3:// prefix or an http(s):// URL, with the settings of a registry.

    `prefixes`: the beginnings of the vendors that it is for. `priority`: a lower number is asked first. `cache`: for its
    answers; not used for a folder on this machine.
    """

    location: str = field(repr=False)
    apikey: str | None = field(default=None, repr=False)
    forbidden_is_absent: bool = False
    prefixes: tuple[str, ...] = ()
    priority: int = 0
    cache: Cache = field(default_factory=Cache)

    @property
    def is_local(self) -> bool:
        """True if the registry is a folder on this machine, which every batch reads again."""
        return not is_http(self.location) and storage.is_local(storage.as_uri(self.location))

    def is_for(self, vendor: str) -> bool:
        """True if the registry is meant for a vendor."""
        return vendor.startswith(self.prefixes)

    def __str__(self) -> str:
        return without_userinfo(self.location)

    def open(self, limits: RegistryLimits | None = None) -> Registry:
        """Opens the registry. Its secrets are masked in messages of this process from now on."""
        if self.is_local:
            return self._open(limits)
        identity = str(self), unquote(urlsplit(self.location).netloc), self.apikey, self.forbidden_is_absent
        return CachedRegistry(self._open(limits), self.cache, identity)

    def _open(self, limits: RegistryLimits | None) -> Registry:
        if not is_http(self.location):
            return FolderRegistry(storage.as_uri(self.location))
        userinfo = unquote(urlsplit(self.location).netloc.rpartition("@")[0])
        authorization = f"Basic {base64.b64encode(userinfo.encode()).decode()}" if userinfo else None
        masking.keep(self.apikey, userinfo.partition(":")[2])
        masking.keep_passwords_of(self.location)
        return HttpRegistry(str(self).rstrip("/"), authorization, self.apikey, self.forbidden_is_absent, limits)
