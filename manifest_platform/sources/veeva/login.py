"""Credentials for a vault, and the bearer tokens of an identity provider.

The module obtains tokens by client credentials and renews them before they expire. `client` opens sessions with them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx
from oauthlib.oauth2 import BackendApplicationClient, OAuth2Error, ServerError, TemporarilyUnavailableError

from manifest_platform import masking
from manifest_platform.settings import is_this_machine
from manifest_platform.sources import answers
from manifest_platform.sources.veeva.errors import VaultRefused, VaultUnavailable
from manifest_platform.sources.veeva.reading import can_be_sent, parsed, shown, text_of
from manifest_platform.sources.veeva.settings import VaultLimits

WELL_KNOWN = (".well-known/openid-configuration", ".well-known/oauth-authorization-server")
"""The paths of a provider's metadata: by OpenID Connect Discovery 1.0, and by RFC 8414."""
_LEEWAY = 60
"""Seconds before its expiry at which a token is replaced, so that it is still valid when it arrives at Vault."""


@dataclass(frozen=True)
class Password:
    """A login by user and password."""

    user: str
    password: str = field(repr=False)

    @property
    def identity(self) -> tuple[object, ...]:
        """The values that distinguish this login from others. They contain secrets."""
        return self.user, self.password

    @property
    def secrets(self) -> tuple[str, ...]:
        """The secrets to mask in messages."""
        return (self.password,)


@dataclass(frozen=True)
class SessionId:
    """A session that was opened elsewhere, by its id. It cannot be renewed here."""

    id: str = field(repr=False)

    @property
    def identity(self) -> tuple[object, ...]:
        """The values that distinguish this login from others. They contain secrets."""
        return (self.id,)

    @property
    def secrets(self) -> tuple[str, ...]:
        """The secrets to mask in messages."""
        return (self.id,)


@dataclass(frozen=True)
class ClientCredentials:
    """A client of an identity provider, which obtains tokens with its secret.

    `issuer`: the provider, whose metadata names its token endpoint. `token_url`: the token endpoint itself. Raises ValueError
    unless exactly one of them is given, and for a URL to which the secret would travel unencrypted.
    """

    client: str
    secret: str = field(repr=False)
    issuer: str | None = None
    token_url: str | None = None
    scope: str | None = None

    def __post_init__(self) -> None:
        if bool(self.issuer) == bool(self.token_url):
            raise ValueError("client credentials need either an issuer or a token_url, not both")
        check_safe(self.issuer or self.token_url or "")


@dataclass(frozen=True)
class OAuth:
    """A login by a bearer token of an identity provider.

    `profile`, `client`: the OAuth profile and the client's id at the vault. `token`: the token itself, or the client that
    obtains tokens. `url`: the server that opens sessions.
    """

    profile: str
    client: str
    token: str | ClientCredentials = field(repr=False)
    url: str = "https://login.veevavault.com"

    @property
    def identity(self) -> tuple[object, ...]:
        """The values that distinguish this login from others. They contain secrets."""
        who = self.token
        told = (who.client, who.secret, who.issuer, who.token_url, who.scope) if isinstance(who, ClientCredentials) else (who,)
        return self.profile, self.client, *told

    @property
    def secrets(self) -> tuple[str, ...]:
        """The secrets to mask in messages."""
        return (self.token.secret if isinstance(self.token, ClientCredentials) else self.token,)


Credentials = Password | SessionId | OAuth


def check_safe(url: str) -> None:
    """Raises ValueError unless a URL is https, or http to this machine: a secret would travel unencrypted."""
    parts = urlsplit(url)
    local = is_this_machine(parts.hostname)
    if parts.scheme != "https" and not (parts.scheme == "http" and local):
        raise ValueError(f"{url}: secrets are sent by https:// only, or by http:// to this machine")


class IdentityProvider:
    """Obtains the tokens of a client from a provider, again when the last token is within a minute of its expiry.

    `clock`: seconds, for tests. Calls raise VaultUnavailable if a later try may succeed, else VaultRefused.
    """

    def __init__(
        self,
        client: ClientCredentials,
        http: answers.Client,
        limits: VaultLimits,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._client, self._http, self._limits, self._clock = client, http, limits, clock
        self._endpoint = client.token_url
        self._by_body = False
        self._token: str | None = None
        self._until = 0.0

    @property
    def is_valid(self) -> bool:
        """True if there is a token that is valid for a while."""
        return self._token is not None and self._clock() < self._until

    def forget(self) -> None:
        """Drops the token, so that the next call obtains another."""
        self._token = None

    def token(self) -> str:
        """Returns a token that is valid for at least a minute, if the provider gives its lifetime."""
        if not self.is_valid or self._token is None:
            self._token = self._obtain()
        return self._token

    def _obtain(self) -> str:
        endpoint = self._endpoint or self._discover()
        who, began = self._client, self._clock()
        grant = BackendApplicationClient(who.client)
        more = {"client_secret": who.secret} if self._by_body else {}
        body = grant.prepare_request_body(scope=who.scope, include_client_id=self._by_body, **more)
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        auth = None if self._by_body else httpx.BasicAuth(who.client, who.secret)
        response = self._ask("POST", endpoint, content=body, headers=headers, auth=auth)
        try:
            told = grant.parse_request_body_response(json.dumps(parsed(response.content)))
            until, token = float(told.get("expires_in") or 0), told["access_token"]
        except (TemporarilyUnavailableError, ServerError) as error:
            raise VaultUnavailable(self._said(endpoint, error)) from None
        except OAuth2Error as error:
            refused = response.status_code >= 400 and error.error == "missing_token"  # an error that is not in OAuth's form
            raise VaultRefused(
                self._said(endpoint, error), f"HTTP {response.status_code}" if refused else text_of(error.error)
            ) from None
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            raise VaultRefused(f"{endpoint} gives no token: its answer is not in OAuth's form", "NO_TOKEN") from error
        if not can_be_sent(token):
            raise VaultRefused(f"{endpoint} gives a token that cannot be sent: it is not printable ASCII", "NO_TOKEN")
        masking.keep(token)
        self._until = began + until - _LEEWAY
        return token

    def _said(self, endpoint: str, error: OAuth2Error) -> str:
        """Returns a failure in the provider's words, masked: they may repeat what was sent."""
        return masking.masked(
            f"{endpoint} gives no token: {text_of(error.error)}: {text_of(error.description or 'no reason given')}"
        )

    def _discover(self) -> str:
        """Finds the token endpoint in the provider's metadata, once."""
        issuer = (self._client.issuer or "").rstrip("/")
        for url in self._places(issuer):
            response = self._ask("GET", url)
            metadata = parsed(response.content)
            if response.status_code == 200 and "token_endpoint" in metadata:
                return self._chosen(issuer, url, metadata)
        raise VaultRefused(f"{issuer} has no metadata at {' or '.join(self._places(issuer))}", "NO_METADATA")

    def _places(self, issuer: str) -> Iterator[str]:
        """Yields the URLs of the metadata. OpenID Connect puts the issuer's path before the well-known path, RFC 8414 after."""
        parts = urlsplit(issuer)
        yield f"{issuer}/{WELL_KNOWN[0]}"
        yield f"{parts.scheme}://{parts.netloc}/{WELL_KNOWN[1]}{parts.path}"

    def _chosen(self, issuer: str, url: str, metadata: dict[str, Any]) -> str:
        if text_of(metadata.get("issuer", "")).rstrip("/") != issuer:
            raise VaultRefused(
                f"{url} is of issuer {shown(metadata.get('issuer'))}, but {issuer} is configured", "WRONG_ISSUER"
            )
        endpoint = text_of(metadata["token_endpoint"], 2000)
        try:
            check_safe(endpoint)
        except ValueError as error:
            raise VaultRefused(f"{url} names the token endpoint {error}", "UNSAFE_ENDPOINT") from None
        methods = metadata.get("token_endpoint_auth_methods_supported")
        methods = methods if isinstance(methods, list) and methods else ["client_secret_basic"]
        self._by_body = "client_secret_basic" not in methods and "client_secret_post" in methods
        self._endpoint = endpoint
        return endpoint

    def _ask(self, method: str, url: str, **request: Any) -> httpx.Response:
        try:
            response = self._http.ask(method, url, self._limits.answer_bytes, self._limits.answer_seconds, **request)
        except httpx.RequestError as error:
            raise VaultUnavailable(masking.masked(f"{method} {url}: {error!r}")) from error
        except answers.TooLarge:
            raise VaultRefused(f"{method} {url}: {self._limits.too_large}", "TOO_LARGE") from None
        if response.status_code == 429 or response.status_code >= 500:
            raise VaultUnavailable(f"{method} {url}: HTTP {response.status_code}")
        return response
