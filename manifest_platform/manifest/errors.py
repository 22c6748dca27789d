"""What the manifest refuses, told apart by what the caller must do next. What goes wrong in the store itself is in `store`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from manifest_platform.remedies import Action, Remedy

if TYPE_CHECKING:
    from manifest_platform.manifest.dataset import LeaseState
    from manifest_platform.manifest.records import Application


class Refused(Exception):
    """What was asked is not allowed as things stand; the message says why. Nothing was written.

    `remedy`: what a person can do, where that is known; it is told behind the message.
    """

    def __init__(self, message: str = "", remedy: Remedy | None = None):
        super().__init__(message)
        self.remedy = remedy


class UnknownItem(Refused):
    """An item that the manifest does not have."""


class ClaimLost(Refused):
    """Somebody else has taken the item over since it was claimed: stop working on it."""


class LeaseLost(ClaimLost):
    """The lease ran out or was taken over: the worker must stop before its next write."""


class LeaseBusy(Refused):
    """Another worker holds the lease."""

    def __init__(self, application: Application, feed: str, lease: LeaseState):
        self.lease = lease
        super().__init__(
            f"{application.key} on feed {feed} is held by {lease.holder} until {lease.expires_at:%Y-%m-%d %H:%M:%S %Z}, and"
            " longer while it lives: wait",
            Remedy(Action.SHOW_STATUS),
        )
