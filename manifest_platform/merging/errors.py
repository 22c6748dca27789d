"""The errors of a merge, divided by what the caller must do next.

PermanentMergeError    a retry cannot help: the partition waits for a person
TransientMergeError    the objects are intact, and a later attempt may succeed
MergeMisconfigured     no partition is at fault: all of them wait until a person repairs the workers
"""

from manifest_platform.faults import Misconfigured, Permanent, Transient


class MergeError(Exception):
    """Anything that prevented a merged object from being written. No row names the files that were written so far."""


class MergeMisconfigured(MergeError, Misconfigured):
    """A worker lacks a package, which affects all ranges until a person installs it."""


class PermanentMergeError(MergeError, Permanent):
    """An error that every retry meets again."""


class MissingInput(PermanentMergeError):
    """An object in the inventory does not exist in the storage."""


class ChangedInput(PermanentMergeError):
    """An object differs from the inventory in size, row count or times, or is not a Parquet file."""


class SchemaConflict(PermanentMergeError):
    """A column has several types, and no type holds the values of all of them without loss."""


class WrongResult(PermanentMergeError):
    """The rows to write differ from the rows that were read. This is a defect in the code; the output must not be used."""


class TransientMergeError(MergeError, Transient):
    """The storage did not answer or denied access, or the disk was full. A later attempt may succeed."""
