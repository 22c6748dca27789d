"""The errors of a landing place. The type says whether to try again, or a person must act, or the item fails."""

from manifest_platform.faults import Misconfigured, Permanent, Transient
from manifest_platform.remedies import LAND_ANEW


class LandingError(Exception):
    """A landing place could not be listed."""


class LandingUnavailable(LandingError, Transient):
    """A timeout, throttling or an I/O error: a later try may succeed with nothing changed."""


class LandingMisconfigured(LandingError, Misconfigured):
    """The place does not exist, or access is refused: a person must act. It is not the fault of any item."""


class LandingDamaged(LandingError, Permanent):
    """A directory is gone, or one of its files has changed: its item fails."""


class LandingLinked(LandingDamaged):
    """A directory is, contains or is below a symbolic link, a pipe or the like. These are never followed or opened."""

    remedy = LAND_ANEW
