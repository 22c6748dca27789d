"""What can go wrong with a landing place, told apart by who is to act."""

from manifest_platform.faults import Misconfigured, Permanent, Transient
from manifest_platform.remedies import LAND_ANEW


class LandingError(Exception):
    """A landing place could not be listed."""


class LandingUnavailable(LandingError, Transient):
    """It may work later with nothing changed: a timeout, throttling, an I/O error."""


class LandingMisconfigured(LandingError, Misconfigured):
    """Somebody has to act: the place does not exist, or access is refused. No item's fault."""


class LandingDamaged(LandingError, Permanent):
    """A directory is gone, or a file of its own is not what it was: its item fails."""


class LandingLinked(LandingDamaged):
    """A directory is a symbolic link, lies below one, or holds one, or a pipe or the like: none is ever followed or opened."""

    remedy = LAND_ANEW
