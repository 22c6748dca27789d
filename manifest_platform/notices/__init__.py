"""Notices: hints that something changed at a place, so that a follower looks before its next listing.

Belongs here: the contract of a kind of notices, and the bell that they ring. A notice is a hint only: it may be lost, come
twice or in any order. What it says is never believed; whoever is woken looks for himself, and looks at intervals anyway.
"""

from typing import cast

from manifest_platform import plugins
from manifest_platform.notices.bell import Bell
from manifest_platform.notices.contract import LandingNotices, Notices

__all__ = ["Bell", "LandingNotices", "Notices", "kind_of"]


def kind_of(url: str) -> type[LandingNotices]:
    """Returns the kind of notices that a URL's scheme names. Raises ValueError that says what is allowed."""
    try:
        return _kind(url.partition("://")[0])
    except plugins.UnknownPlugin:
        examples = (_kind(name).example for name in plugins.names(plugins.NOTICES))
        raise ValueError(f"allowed: {', '.join(examples)}") from None


def _kind(scheme: str) -> type[LandingNotices]:
    return cast(type[LandingNotices], plugins.load(plugins.NOTICES, scheme))
