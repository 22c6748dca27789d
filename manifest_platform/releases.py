"""Compatibility of releases on one store: which release may write rows that another release has written.

Stored rows carry the version of their format. A release reads rows of an older form and upgrades a store once.
It keeps fields that a newer release added, and writes nothing to a store that a newer release has upgraded.

Belongs here: the version that this release writes, its form in a stored row, and the error of a release that may not write.
The manifest uses it in its rows, the warehouse in its control tables. `manifest.takeover` upgrades a store.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from manifest_platform.faults import Permanent

FORM = 2
"""The version of the rows that this release writes. It grows when an older release can no longer work with the rows."""
RELEASE = "0.2.0"
"""The first release that writes rows of this form. Messages name it."""
FIRST_FORM, FIRST_RELEASE = 1, "0.1.0"
"""The form of a row without a version, which release 0.1.0 wrote."""

_RELEASES = {FIRST_FORM: FIRST_RELEASE, FORM: RELEASE}

NEEDS = "needs manifest-platform {} or later"
"""A text that makes rows unreadable for release 0.1.0, which does not check versions. Its parse error shows the text."""


class NewerRelease(Permanent):
    """A newer release writes here, so this release writes nothing. Reading is still possible."""

    def __init__(self, what: str, form: int, release: str = ""):
        other = f"manifest-platform {release} or later" if release else "the release that has begun to write there"
        super().__init__(
            f"{what} is of version {form}, and this release writes version {FORM}: use {other}; nothing was written"
        )


@dataclass(frozen=True)
class Form:
    """The form of a stored row, and the first release that writes such rows."""

    number: int = FORM
    release: str = RELEASE

    @property
    def is_newer(self) -> bool:
        """True if a newer release wrote the row."""
        return self.number > FORM

    @property
    def is_older(self) -> bool:
        """True if an older release wrote the row."""
        return self.number < FORM

    def require_writable(self, what: str) -> None:
        """Raises NewerRelease if this release may not write the row."""
        if self.is_newer:
            raise NewerRelease(what, self.number, self.release)

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Form:
        """The form of a stored row."""
        number = data.get("version", FIRST_FORM)
        return cls(number, data.get("release") or _RELEASES.get(number, ""))

    @classmethod
    def of_key(cls, data: Mapping[str, Any]) -> Form:
        """The form of a lease's row, which is in the name of a field so that release 0.1.0 cannot parse the row."""
        before, _, behind = NEEDS.partition("{}")
        for name, number in data.items():
            if name.startswith(before) and name.endswith(behind):
                return cls(number, name.removeprefix(before).removesuffix(behind))
        return FIRST


OWN = Form()
FIRST = Form(FIRST_FORM, FIRST_RELEASE)


def marked(value: Any) -> list[Any]:
    """The stored form of a value in a row that release 0.1.0 must not parse."""
    return [value, NEEDS.format(RELEASE)]


def unmarked(stored: Any) -> Any:
    """The value stored by `marked`, or stored without a mark by an older release."""
    return stored[0] if isinstance(stored, list) else stored


def unknown(data: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """The fields of a stored row that this release does not know. They are written back unchanged."""
    return {name: value for name, value in data.items() if name not in known}
