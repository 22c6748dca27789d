"""What can go wrong between Vault and the landing place. Transient and permanent failures are different types."""

from __future__ import annotations

from manifest_platform.sources.errors import LandingError, LandingMisconfigured, LandingUnavailable


class VaultUnavailable(LandingUnavailable):
    """Vault may answer later with nothing changed: down, slow, throttling.

    `wait`: the seconds after which it wants to be asked again, where it said so.
    """

    def __init__(self, message: str, wait: float | None = None):
        super().__init__(message)
        self.wait = wait


class VaultUnreachable(VaultUnavailable):
    """No other call would fare better now: no connection, no session for the time being, or a long wait asked for."""


class NothingPublished(VaultUnavailable):
    """Vault generates the first files still: Direct Data was switched on a short while ago. It takes up to a day."""


class DownloadBroken(VaultUnavailable):
    """A download ended early: what has arrived is worthless."""


class VaultRefused(LandingMisconfigured):
    """Vault will say the same again until somebody acts. `type`: Vault's own word for it, or `HTTP <status>`."""

    def __init__(self, message: str, type: str):  # noqa: A002
        super().__init__(message)
        self.type = type


class LoginRefused(VaultRefused):
    """There is no session, and none is asked for again: every further try may lock the user out."""


class WrongVault(LoginRefused):
    """Vault opened a session, but for another vault than the configured one."""


class NoRoom(LandingUnavailable):
    """A window is larger than the disk has room for. A smaller one may well find it."""


class BadArchive(LandingError):
    """What Vault gave is not the window that it announced: damaged, incomplete, or not to be trusted."""
