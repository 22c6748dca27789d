"""Clients of Iglu registries: folders, and HTTP servers.

A registry is a folder (local or s3://), a static HTTP(S) site or an Iglu server. All have the layout
`schemas/<vendor>/<name>/<format>/<model>-<revision>-<addition>`. The answers of an HTTP server are not trusted:
`RegistryLimits` bounds what is read of them.
"""

from __future__ import annotations

import base64
import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import unquote, urljoin, urlsplit

import httpx
import orjson

from manifest_platform import masking, storage
from manifest_platform.faults import Misconfigured
from manifest_platform.shred.batch import SchemaError, Unreachable
from manifest_platform.sources import answers
from manifest_platform.sources.snowplow.schemas.keys import SchemaKey, is_key, sibling
from manifest_platform.sources.snowplow.settings import RegistryLimits, is_http, without_userinfo

ATTEMPTS = 3
SILENCE_SECONDS = 10.0
PAUSE_SECONDS = 0.2

_LITTLE = 1 << 16  # a short answer to a failed call is read to its end, so that the connection can be reused


class RegistryRefused(RuntimeError, Misconfigured):
    """A registry refuses access. Permanent until a person fixes the registry or the configuration. No item fails for it."""


class RegistryUnavailable(Unreachable):
    """A registry did not answer, or answered with a server error. Transient: the same lookup may succeed later."""


class Registry(Protocol):
    """A place that may have schemas."""

    def close(self) -> None:
        """Closes open connections."""

    def read(self, key: SchemaKey) -> bytes | None:
        """Returns the text of a schema; None if the registry lacks it. Raises RegistryUnavailable, RegistryRefused."""

    def versions(self, key: SchemaKey) -> list[SchemaKey]:
        """Returns the versions of the key's model that the registry has, in any order. Raises as `read`."""

    def keys(self) -> list[SchemaKey] | None:
        """Returns all schemas that the registry has; None if it gives no list. Raises as `read`."""


@dataclass(frozen=True)
class FolderRegistry:
    """A folder that is, or contains, `schemas/`."""

    uri: str

    def close(self) -> None:
        """Does nothing."""

    def read(self, key: SchemaKey) -> bytes | None:
        """Returns the text of a schema; None if there is no such file."""
        for root in (f"{self.uri}/schemas", self.uri):
            try:
                return storage.read_bytes(f"{root}/{key.path}")
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                raise _storage_error(f"{root}/{key.path} cannot be read", error) from error
        return None

    def versions(self, key: SchemaKey) -> list[SchemaKey]:
        """Returns the versions of the key's model, by listing its folder."""
        from pyarrow.fs import FileSelector

        found = []
        for root in (f"{self.uri}/schemas", self.uri):
            system, path = storage.filesystem(f"{root}/{key.vendor}/{key.name}/{key.format}")
            try:
                entries = system.get_file_info(FileSelector(path, allow_not_found=True))
            except OSError as error:
                raise _storage_error(f"{path} cannot be listed", error) from error
            found += [version for entry in entries if (version := sibling(key, entry.base_name))]
        return found

    def keys(self) -> list[SchemaKey]:
        """Returns all schemas in the folder, by listing everything below it."""
        from pyarrow.fs import FileSelector

        for root in (f"{self.uri}/schemas", self.uri):
            system, path = storage.filesystem(root)
            try:
                entries = system.get_file_info(FileSelector(path, allow_not_found=True, recursive=True))
            except OSError as error:
                raise _storage_error(f"{path} cannot be listed", error) from error
            texts = ("iglu:" + "/".join(entry.path.split("/")[-4:]) for entry in entries if entry.is_file)
            if found := [SchemaKey.parse(text) for text in texts if is_key(text)]:
                return found
        return []

    def __str__(self) -> str:
        return self.uri


def _storage_error(what: str, error: OSError) -> RegistryUnavailable | RegistryRefused:
    if storage.is_refusal(error):
        return RegistryRefused(f"{what}: {error}; allow it, or correct the registry in shred.schemas")
    return RegistryUnavailable(f"{what}: {error}; check the registry")


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
        self._client = answers.Client(SILENCE_SECONDS, SILENCE_SECONDS)

    def __repr__(self) -> str:
        return f"HttpRegistry({self.url})"

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()

    def read(self, key: SchemaKey) -> bytes | None:
        """Returns the text of a schema; None if the site answers that it does not exist."""
        with self._client.within(self._limits.seconds):
            return self._get(key.path)

    def versions(self, key: SchemaKey) -> list[SchemaKey]:
        """Returns the versions of the key's model: from the server's list, or else by asking for one version after another."""
        with self._client.within(self._limits.seconds):
            listed = self._get(f"{key.vendor}/{key.name}/{key.format}/{key.model}")
            try:
                texts = orjson.loads(listed or b"null")
            except orjson.JSONDecodeError:
                texts = None
            if isinstance(texts, list):
                keys = [SchemaKey.parse(text) for text in texts if isinstance(text, str) and is_key(text)]
                return [version for version in keys if version.family == key.family]
            return list(self._successors(key))

    def keys(self) -> list[SchemaKey] | None:
        """Returns all schemas of an Iglu server; None for a site that gives no list."""
        with self._client.within(self._limits.seconds):
            try:
                texts = orjson.loads(self._get("") or b"null")
            except (orjson.JSONDecodeError, SchemaError):
                return None
        if not isinstance(texts, list):
            return None
        return [SchemaKey.parse(text) for text in texts if isinstance(text, str) and is_key(text)]

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
                if version == key or self._get(version.path) is not None:
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

    def _get(self, path: str) -> bytes | None:
        url = f"{self.url}/schemas/{path}".rstrip("/")
        problem: object = None
        for attempt in range(1, ATTEMPTS + 1):
            if attempt > 1:
                time.sleep(min(PAUSE_SECONDS * 2 ** (attempt - 1), max(0.0, self._client.left())))
            try:
                status, text = self._follow(url)
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
            if self._client.left() <= 0:
                problem = f"{problem}; it took longer than shred.registry_limits.seconds, {self._limits.seconds:g} in all"
                break
        raise RegistryUnavailable(f"{url}: {problem} ({attempt} attempts); check that the registry is up, then retry")

    def _follow(self, url: str) -> tuple[int, bytes]:
        """Returns the status (200 for every success) and the body of an answer. Raises httpx.RequestError, SchemaError."""
        place, headers = url, self._secrets
        for _ in range(self._limits.redirects + 1):
            response = self._client.begin("GET", place, headers=headers)
            try:
                if response.is_redirect:
                    headers = {}
                    place = self._redirected(url, place, response.headers["Location"])
                    continue
                if response.is_success:
                    return 200, answers.body(response, self._limits.schema_kib << 10)
                with contextlib.suppress(answers.TooLarge, httpx.RequestError):
                    answers.body(response, _LITTLE)
                return response.status_code, b""
            except answers.TooLarge:
                raise SchemaError(
                    f"{url} has more than {self._limits.schema_kib} KiB; correct it there, or raise"
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


@dataclass(frozen=True)
class Place:
    """The location of a registry: a folder, an s3:// prefix or an http(s):// URL, with the settings of an HTTP registry."""

    location: str = field(repr=False)
    apikey: str | None = field(default=None, repr=False)
    forbidden_is_absent: bool = False

    def __str__(self) -> str:
        return without_userinfo(self.location)

    def open(self, limits: RegistryLimits | None = None) -> Registry:
        """Opens the registry. Its secrets are masked in messages of this process from now on."""
        if not is_http(self.location):
            return FolderRegistry(storage.as_uri(self.location))
        userinfo = unquote(urlsplit(self.location).netloc.rpartition("@")[0])
        authorization = f"Basic {base64.b64encode(userinfo.encode()).decode()}" if userinfo else None
        masking.keep(self.apikey, userinfo.partition(":")[2])
        masking.keep_passwords_of(self.location)
        return HttpRegistry(str(self).rstrip("/"), authorization, self.apikey, self.forbidden_is_absent, limits)
