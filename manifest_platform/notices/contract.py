"""The contract of a kind of notices."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar


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


class LandingNotices(Notices):
    """Notices of new objects below a landing root, by a URL: a plug-in of the group `manifest_platform.notices`.

    The name of its entry point is the scheme of its URLs. `example`: one of these, for messages.
    """

    example: ClassVar[str]

    @abstractmethod
    def __init__(self, url: str, counts: Callable[[str], bool]) -> None:
        """Connects to nothing yet. Raises ValueError for a wrong URL.

        `counts`: chooses the URIs of objects that count. It is called with each URI, because it remembers what was named.
        """

    @classmethod
    @abstractmethod
    def checked(cls, url: str) -> str:
        """Returns the URL as the configuration stores it. Raises ValueError that says what is allowed."""
