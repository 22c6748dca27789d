"""Access to an account: where it is, as whom to log in, and what to read objects with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from manifest_platform import masking
from manifest_platform.masking import UnusableSecret


@dataclass(frozen=True)
class Login:
    """The way to log in: a private key, a password, or an OAuth token. Secrets are read when they are needed."""

    private_key_file: str | None = None
    private_key_variable: str | None = None
    passphrase_variable: str | None = None
    password_variable: str | None = None
    token_variable: str | None = None

    def credentials(self) -> dict[str, str | bytes]:
        """Returns the credentials by the driver's names. Raises UnusableSecret, and SecretOutOfReach."""
        if self.token_variable:
            return {"authenticator": "oauth", "token": _secret(self.token_variable)}
        if self.password_variable:
            return {"password": _secret(self.password_variable)}
        return {"private_key": self._private_key()}

    def _private_key(self) -> bytes:
        """Returns the private key without encryption, which is the form that the driver takes."""
        from cryptography.hazmat.primitives import serialization

        where = self.private_key_variable or str(self.private_key_file)
        passphrase = _secret(self.passphrase_variable) if self.passphrase_variable else None
        try:
            key = serialization.load_pem_private_key(self._pem(), passphrase.encode() if passphrase else None)
        except OSError as error:
            raise UnusableSecret(f"private_key_file: {where} cannot be read: {error.strerror}") from error
        except (TypeError, ValueError) as error:
            raise UnusableSecret(
                f"{where}: holds no private key that can be read: a PEM text that begins with -----BEGIN, and"
                " passphrase_variable if it is encrypted"
            ) from error
        form, without = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        return key.private_bytes(serialization.Encoding.DER, form, without)

    def _pem(self) -> bytes:
        if not self.private_key_variable:
            return Path(self.private_key_file or "").read_bytes()
        pem = masking.value_of(self.private_key_variable) or ""
        masking.keep(pem)
        return pem.encode()


@dataclass(frozen=True)
class Access:
    """Everything that the engine needs of the settings. `options`: role, host, port and protocol, if they are given."""

    account: str
    user: str
    database: str
    warehouse: str
    options: Mapping[str, str | int]
    login: Login
    stage: str | None
    storage_integration: str | None
    has_variants: bool
    statement_seconds: int
    login_seconds: int
    network_seconds: int
    read_role: str | None
    clustering: Mapping[str, Sequence[str]]

    @property
    def place(self) -> str:
        """The account and the database."""
        return f"snowflake://{self.account}/{self.database}"

    @property
    def where(self) -> dict[str, str | int]:
        """The account, the user, and what the session uses, by the driver's names."""
        names = {"account": self.account, "user": self.user, "database": self.database, "warehouse": self.warehouse}
        return {**names, **self.options}


def _secret(variable: str) -> str:
    value = masking.secret(variable)
    if value is None:
        raise UnusableSecret(f"{variable}: is not set, and the warehouse's settings name it. Set it, then try again")
    return value
