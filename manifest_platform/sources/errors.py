"""What can go wrong with a landing place: the transient and the permanent failure."""


class LandingError(Exception):
    """A landing place could not be listed."""


class LandingUnavailable(LandingError):
    """It may work later with nothing changed: a timeout, throttling, an I/O error."""


class LandingMisconfigured(LandingError):
    """Somebody has to act: the place does not exist, or access is refused."""
