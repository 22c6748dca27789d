"""Moved directories: each affected item gets a record that says where its files are now.

An item is identified permanently by the URI under which it was registered. So a moved directory is not a second item.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from manifest_platform import progress, storage
from manifest_platform.manifest import Item, Refused, State
from manifest_platform.manifest.item import Move
from manifest_platform.pipeline.pipeline import Pipeline
from manifest_platform.sources.errors import LandingDamaged, LandingMisconfigured

AT_ONCE = 50
"""The maximum number of items whose moves one transaction records."""


@dataclass
class Moved:
    """The outcome of a move, by item. Each item is counted once, except that `failed` repeats some of the moved items.

    `moved`: the files are the same at the new place. `already`: the move was recorded before. `elsewhere`: below neither place.
    `gone`: absent at the new place, but loaded or skipped, so not needed. `missing`: absent and still needed. `differs`: the
    files differ from the registered ones. `failed`: moved, and waiting to be resolved. `left`: true if `limit` ended the run.
    """

    old: str
    new: str
    dry_run: bool
    moved: int = 0
    already: int = 0
    elsewhere: int = 0
    gone: int = 0
    missing: list[str] = field(default_factory=list)
    differs: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    left: bool = False


def import_moved(
    pipeline: Pipeline,
    old: str,
    new: str,
    reason: str,
    *,
    same_size: bool = False,
    limit: int | None = None,
    dry_run: bool = False,
) -> Moved:
    """Records that everything registered below one folder is below another now. Checksums are compared.

    `same_size`: also accepts a directory with another checksum if its numbers of files and bytes are the same. A copy has other
    modification times on a disk, and other ETags in S3 if it was uploaded in parts. `limit`: the maximum number of items.
    Idempotent: recorded moves are passed over. Raises Refused if a place is invalid, LandingUnavailable.
    """
    try:
        before, after = storage.as_uri(old), storage.as_uri(new)
    except storage.UnsupportedLocation as error:
        raise Refused(str(error)) from error
    if before == after:
        raise Refused(f"{old} and {new} are the same place: name the folder before the move and the folder after it")
    report = Moved(before, after, dry_run)
    moves: list[tuple[Item, Move]] = []
    for feed in pipeline.feeds:
        for item in progress.each(pipeline.manifest.items(feed), f"looking at the items of {feed}"):
            if limit is not None and report.moved + len(moves) >= limit:
                report.left = True
                break
            place = item.place
            if place.startswith(f"{after}/"):
                report.already += 1
            elif not place.startswith(f"{before}/"):
                report.elsewhere += 1
            elif move := _look(pipeline, item, after + place.removeprefix(before), same_size, report):
                moves.append((item, move))
                blocker = item.blocker()
                report.failed += [item.key.name] if blocker and blocker.state is State.FAILED else []
            if len(moves) == AT_ONCE:
                _tell(pipeline, moves, reason, report)
    _tell(pipeline, moves, reason, report)
    return report


def _look(pipeline: Pipeline, item: Item, target: str, same_size: bool, report: Moved) -> Move | None:
    """Returns the move of an item if its files are at the new place; otherwise counts the reason in the report."""
    landed, name = item.landed, item.key.name
    if landed is None or not landed.files:
        return Move(target)  # the item has no files, or its files are not recorded
    try:
        there = pipeline.source.reread(replace(landed, content=target))
    except (LandingDamaged, LandingMisconfigured):
        loads = [one.load for one in pipeline.each_target()]
        needed = not all(item.processed_by(load) or item.skipped_for(load) for load in loads)
        report.gone += not needed
        report.missing += [name] if needed else []
        return None
    if there.checksum == landed.checksum:
        return Move(target)
    if same_size and (there.files, there.bytes) == (landed.files, landed.bytes):
        return Move(target, there.checksum)
    report.differs += [name]
    return None


def _tell(pipeline: Pipeline, moves: list[tuple[Item, Move]], reason: str, report: Moved) -> None:
    if moves and not report.dry_run:
        pipeline.manifest.move(moves, reason)
    report.moved += len(moves)
    moves.clear()
