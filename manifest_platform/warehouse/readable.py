"""The objects of a listing as engines read them: whole files, whose columns are not nested."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, contextmanager

from manifest_platform import spool, storage
from manifest_platform.listing import Listing
from manifest_platform.packs import PackDamaged, unpacked
from manifest_platform.warehouse.engines.engine import Engine
from manifest_platform.warehouse.errors import LoadFailed, Unavailable
from manifest_platform.warehouse.nested import flattened
from manifest_platform.warehouse.scratch import scratch


@contextmanager
def readable(listing: Listing, engine: Engine) -> Generator[Listing]:
    """Yields the listing with objects that an engine can read, and removes the files that were made for it afterward.

    Raises LoadFailed if a file is gone or damaged, Unavailable if the storage cannot be used.
    """
    with ExitStack() as stack:
        try:
            whole = listing
            if listing.packs and engine.reads_storage:
                whole = unpacked(listing, stack.enter_context(scratch(listing)).folder(listing.packs[0].uri))
            elif listing.packs:
                whole = unpacked(listing, storage.as_uri(stack.enter_context(spool.folder("pack"))))
        except (FileNotFoundError, PackDamaged) as error:
            raise LoadFailed(f"{listing.item}: {error}. Shred the item again") from error
        except OSError as error:
            raise Unavailable(
                f"{listing.item}: packed objects cannot be read or written: {error}. Check that the storage can be used"
            ) from error
        yield stack.enter_context(flattened(whole))
