"""Two releases on one store: which release may write what another has written.

Rows that outlive a release carry the version of their form. A release reads rows of an older form and takes a store over,
once; it keeps what a newer release added, and writes nothing where one has begun.

Belongs here: the version that this release writes, what a stored row says of it, and what a release is told that may not write.
The manifest has it in its rows, the warehouse in its control tables. How a store is taken over is said in `manifest.takeover`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from manifest_platform.faults import Permanent

FORM = 2
"""The version of the rows that this release writes. It grows when an older release could no longer work beside it."""
RELEASE = "0.2.0"
"""The first release that writes rows of this form: the one that a message names."""
FIRST_FORM, FIRST_RELEASE = 1, "0.1.0"
"""What a row is of that says nothing: release 0.1.0 wrote no versions."""

_RELEASES = {FIRST_FORM: FIRST_RELEASE, FORM: RELEASE}

NEEDS = "needs manifest-platform {} or later"
"""What a row says so that release 0.1.0 cannot read it: it asks for no version, and its error repeats this text."""


class NewerRelease(Permanent):
    """A newer release has begun to write here, so this one writes nothing. Reading goes on."""

    def __init__(self, what: str, form: int, release: str = ""):
        other = f"manifest-platform {release} or later" if release else "the release that has begun to write there"
        super().__init__(
            f"{what} is of version {form}, and this release writes version {FORM}: use {other}; nothing was written"
        )


@dataclass(frozen=True)
class Form:
    """Of which form a stored row is, and the first release that writes such rows."""

    number: int = FORM
    release: str = RELEASE

    @property
    def is_newer(self) -> bool:
        """Whether a newer release wrote the row."""
        return self.number > FORM

    @property
    def is_older(self) -> bool:
        """Whether an older release wrote the row."""
        return self.number < FORM

    def require_writable(self, what: str) -> None:
        """Raises NewerRelease where this release may not write the row."""
        if self.is_newer:
            raise NewerRelease(what, self.number, self.release)

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Form:
        """The form of a stored row."""
        number = data.get("version", FIRST_FORM)
        return cls(number, data.get("release") or _RELEASES.get(number, ""))

    @classmethod
    def of_key(cls, data: Mapping[str, Any]) -> Form:
        """The form of a lease's row: a name in it says so, which release 0.1.0 stumbles over."""
        before, _, behind = NEEDS.partition("{}")
        for name, number in data.items():
            if name.startswith(before) and name.endswith(behind):
                return cls(number, name.removeprefix(before).removesuffix(behind))
        return FIRST


OWN = Form()
FIRST = Form(FIRST_FORM, FIRST_RELEASE)


def marked(value: Any) -> list[Any]:
    """A value as it is stored in a row that release 0.1.0 must not take for one of its own."""
    return [value, NEEDS.format(RELEASE)]


def unmarked(stored: Any) -> Any:
    """The value that `marked` stored, or an older release as it was."""
    return stored[0] if isinstance(stored, list) else stored


def unknown(data: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """What a stored row has that this release does not know: it is written back as it is."""
    return {name: value for name, value in data.items() if name not in known}
