"""The refusals of the manifest, a class for each reaction of the caller. Errors of the store itself are in `store`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from manifest_platform.remedies import Action, Remedy

if TYPE_CHECKING:
    from manifest_platform.manifest.dataset import LeaseState
    from manifest_platform.manifest.records import Application


class Refused(Exception):
    """A request that is not allowed in the current state; the message gives the reason. Nothing was written.

    `remedy`: what a person can do, if that is known; it is shown after the message.
    """

    def __init__(self, message: str = "", remedy: Remedy | None = None):
        super().__init__(message)
        self.remedy = remedy


class UnknownItem(Refused):
    """An item that the manifest does not have."""


class ClaimLost(Refused):
    """A claim that somebody else has taken over or ended: the worker must stop working on the item."""


class LeaseLost(ClaimLost):
    """A lease that expired or was taken over: the worker must stop before its next write."""


class WorkEnded(BaseException):
    """The work under a lease was told to end, as by a signal to the process: it puts back what it claimed."""


class LeaseBusy(Refused):
    """A lease that another worker holds."""

    def __init__(self, application: Application, feed: str, lease: LeaseState):
        self.lease = lease
        super().__init__(
            f"{application.key} on feed {feed} is held by {lease.holder} until {lease.expires_at:%Y-%m-%d %H:%M:%S %Z}, and"
            " longer while it lives: wait",
            Remedy(Action.SHOW_STATUS),
        )
