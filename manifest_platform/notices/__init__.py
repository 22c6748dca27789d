"""Notices: hints that something changed at a place, so that a follower looks before its next listing.

Belongs here: the contract of a kind of notices, and the bell that they ring. A notice is a hint only: it may be lost, come
twice or in any order. What it says is never believed; whoever is woken looks for himself, and looks at intervals anyway.
"""

from manifest_platform.notices.bell import Bell
from manifest_platform.notices.contract import Notices

__all__ = ["Bell", "Notices"]
