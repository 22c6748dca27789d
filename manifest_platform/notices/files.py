"""Notices of the files on this machine's disks, by the operating system (inotify on Linux), with the library watchdog.

Watchdog was chosen because Dagster needs it anyway, because no thread of it wakes without an event, and because its watches
stand once it has started: what changes from then on is told. File systems of other machines tell nothing of what others write.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

from manifest_platform.notices.contract import Notices


class FileNotices(Notices):
    """Notices of files and folders that are written or moved into a folder.

    `counts`: chooses the paths that count, by their text and whether they are folders. `recursive`: also in all folders below.
    `growing`: also reports a file that is still being written.
    """

    def __init__(
        self, folder: Path, counts: Callable[[str, bool], bool], recursive: bool = True, growing: bool = False
    ) -> None:
        self.place = str(folder)
        self._counts, self._recursive, self._growing = counts, recursive, growing
        self._ended = threading.Event()

    def watch(self, tell: Callable[[], object]) -> None:
        """Watches until `close`, or until the folder is removed. Raises OSError if it cannot be watched."""
        from watchdog import events
        from watchdog.observers import Observer

        counts = self._counts

        class Handler(events.FileSystemEventHandler):
            def on_any_event(self, event: events.FileSystemEvent) -> None:
                paths = (os.fsdecode(path) for path in (event.dest_path, event.src_path) if path)
                if any(counts(path, event.is_directory) for path in paths):
                    tell()

        kinds: list[type[events.FileSystemEvent]] = [
            events.FileCreatedEvent,
            events.FileMovedEvent,
            events.FileClosedEvent,
            events.DirCreatedEvent,
            events.DirMovedEvent,
        ]
        kinds += [events.FileModifiedEvent] if self._growing else []
        observer = Observer()
        watch = observer.schedule(Handler(), self.place, recursive=self._recursive, event_filter=kinds)
        try:
            observer.start()
        except OSError as error:
            raise OSError(f"{error.strerror or error}{_LIMITS.get(error.errno or 0, '')}") from error
        try:
            tell()
            emitters = [one for one in observer.emitters if one.watch == watch]
            while not self._ended.wait(_CHECK_SECONDS):
                if not all(one.is_alive() for one in emitters):
                    raise FileNotFoundError("the folder was removed")
        finally:
            observer.stop()
            observer.join(5)

    def close(self) -> None:
        """Ends the watch."""
        self._ended.set()


_LIMITS = {
    errno.ENOSPC: ": it has more folders than may be watched; raise sysctl fs.inotify.max_user_watches",
    errno.EMFILE: ": too many programs watch folders; raise sysctl fs.inotify.max_user_instances",
}
"""Remedies for the limits of the operating system, by the number of the error."""
_CHECK_SECONDS = 10.0
"""The seconds between two looks whether the watched folder is still there."""
