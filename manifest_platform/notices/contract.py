"""The contract of a kind of notices."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable


class Notices(ABC):
    """Notices of changes at one place.

    `place`: the place in words, without secrets, for messages.
    """

    place: str

    @abstractmethod
    def watch(self, tell: Callable[[], object]) -> None:
        """Calls `tell` after each change, and once as soon as no further change can be missed. Returns after `close`.

        Runs in a thread of its own. Any error ends it; it is called again after a pause.
        """

    @abstractmethod
    def close(self) -> None:
        """Makes `watch` return, from another thread."""

    def taken(self) -> Callable[[], object]:
        """Returns a function to call once a look is over that began after this call: what was told before is settled."""
        return lambda: None
