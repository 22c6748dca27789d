"""What can keep small objects from being merged, told apart by what the caller must do next.

PermanentMergeError    trying again cannot help: the partition waits for a person
TransientMergeError    nothing is wrong with the objects, and a later try may succeed
"""

from manifest_platform.faults import Permanent, Transient


class MergeError(Exception):
    """Anything that kept a merged object from being written; what was written of it is named by no row."""


class PermanentMergeError(MergeError, Permanent):
    """Trying again cannot help."""


class MissingInput(PermanentMergeError):
    """An object that the inventory knows is not there."""


class ChangedInput(PermanentMergeError):
    """An object is not what the inventory says that it is: its size, its rows or its times differ, or it is no Parquet file."""


class SchemaConflict(PermanentMergeError):
    """A column has types of which neither holds the other without loss."""


class WrongResult(PermanentMergeError):
    """What was to be written differs from what was read: a defect. Nothing of it may be used."""


class TransientMergeError(MergeError, Transient):
    """A storage did not answer or did not let us in, or there was no room; a later try may succeed."""
