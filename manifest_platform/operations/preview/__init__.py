"""A look at a place before anything is configured: the source's landing roots there, and a sample of the resulting rows.

Nothing is written, neither there nor anywhere else.
"""

from manifest_platform.operations.preview.preview import FeedSeen, Preview, preview
from manifest_platform.operations.preview.recognition import NotThere, Root, Unknown, recognize
from manifest_platform.operations.preview.sequence import Hole, Sequence

__all__ = ["FeedSeen", "Hole", "NotThere", "Preview", "Root", "Sequence", "Unknown", "preview", "recognize"]
