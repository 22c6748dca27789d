"""What can go wrong with a landing place: the transient and the permanent failure."""

from manifest_platform.faults import Permanent, Transient


class LandingError(Exception):
    """A landing place could not be listed."""


class LandingUnavailable(LandingError, Transient):
    """It may work later with nothing changed: a timeout, throttling, an I/O error."""


class LandingMisconfigured(LandingError, Permanent):
    """Somebody has to act: the place does not exist, or access is refused."""
