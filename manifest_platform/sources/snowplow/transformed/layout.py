"""The layouts of a transformed run: what each file holds, by its path below the run.

Releases 1.0 to 5.7 write `output=good/vendor=/name=/format=/model=/`, and later releases add `/revision=/addition=/`. The
release before 1.0 lacks `output=good/`. Wide rows are directly in `output=good/`. Bad rows are in `output=bad/`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from manifest_platform.shred.batch import Unusable

ATOMIC = ("com.snowplowanalytics.snowplow", "atomic")
"""Vendor and name of the events themselves."""

_TABLE = re.compile(
    r"(?:output=good/)?vendor=(?P<vendor>[^/]+)/name=(?P<name>[^/]+)/format=(?P<format>[^/]+)/model=(?P<model>[0-9]+)"
    r"(?:/revision=(?P<revision>[0-9]+)/addition=(?P<addition>[0-9]+))?/[^/]+"
)
_WIDE = re.compile(r"output=good/[^/]+")


@dataclass(frozen=True)
class TableFile:
    """A file with the rows of one type. `version`: the exact version of the schema, if the path has it."""

    vendor: str
    name: str
    format: str
    model: int
    version: str | None

    @property
    def is_atomic(self) -> bool:
        """True if the rows are events."""
        return (self.vendor, self.name) == ATOMIC

    @property
    def family(self) -> str:
        """The family of the schema, as of our keys."""
        return f"iglu:{self.vendor}/{self.name}/jsonschema/{self.model}"


@dataclass(frozen=True)
class WideFile:
    """A file with a row an event."""


def file_at(path: str) -> TableFile | WideFile | None:
    """Returns the meaning of a file by its path below the run; None for bad rows. Raises Unusable for any other path."""
    if path.startswith("output=bad/"):
        return None
    if found := _TABLE.fullmatch(path):
        version = f"{found['model']}-{found['revision']}-{found['addition']}" if found["revision"] else None
        return TableFile(found["vendor"], found["name"], found["format"], int(found["model"]), version)
    if _WIDE.fullmatch(path):
        return WideFile()
    raise Unusable(
        f"the file {path} is in no folder of Snowplow's transformer (output=good/vendor=…/name=…/format=…/model=…/, or"
        " output=good/ for wide rows), so nobody knows what it holds; remove it, and accept the run"
    )
