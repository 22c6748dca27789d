"""The errors between Vault and the landing place. Transient and permanent errors are different types."""

from __future__ import annotations

from manifest_platform.sources.errors import LandingError, LandingMisconfigured, LandingUnavailable


class VaultUnavailable(LandingUnavailable):
    """Vault is down, slow or throttling: a later call may succeed with nothing changed.

    `wait`: the seconds that Vault asks to wait, if it does.
    """

    def __init__(self, message: str, wait: float | None = None):
        super().__init__(message)
        self.wait = wait


class VaultUnreachable(VaultUnavailable):
    """No other call would succeed now: no connection, no session for the time being, or Vault asks for a long wait."""


class NothingPublished(VaultUnavailable):
    """Vault is still generating the first files, which takes up to a day after Direct Data is switched on."""


class DownloadBroken(VaultUnavailable):
    """A download ended early. The bytes so far are worthless."""


class VaultRefused(LandingMisconfigured):
    """Vault will refuse again until a person acts. `type`: Vault's name of the error, or `HTTP <status>`."""

    def __init__(self, message: str, type: str):  # noqa: A002
        super().__init__(message)
        self.type = type


class LoginRefused(VaultRefused):
    """There is no session. No further login is tried: every try may lock the user out."""


class WrongVault(LoginRefused):
    """Vault opened a session, but for another vault than the configured one."""


class NoRoom(LandingUnavailable):
    """A window is larger than the free space of the disk. A smaller window may still fit."""


class BadArchive(LandingError):
    """The archive is not the announced window: it is damaged, incomplete or not to be trusted."""
