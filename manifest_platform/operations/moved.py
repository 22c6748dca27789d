"""Items whose directories were moved: each gets a record that says where its files are now.

An item is known by the URI that it was registered under, for ever: so a directory that lies elsewhere now is no second item.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from manifest_platform import progress, storage
from manifest_platform.manifest import Application, Item, Refused, State
from manifest_platform.manifest.item import Move
from manifest_platform.pipeline.pipeline import Pipeline
from manifest_platform.sources.errors import LandingDamaged, LandingMisconfigured
from manifest_platform.sources.source import LOAD

AT_ONCE = 50
"""Items that one transaction tells of."""


@dataclass
class Moved:
    """What became of the items below a root that was moved; items by their names.

    `moved`: their files are the same at the new place. `already`: it was told before. `elsewhere`: they are below neither
    place. `gone`: loaded or skipped, and not at the new place, where nobody needs them. `missing`: still needed, and not
    there. `differs`: other files than those that were registered. `failed`: moved, and they wait to be resolved. `left`:
    whether the limit ended it before the end.
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
    """Tells the manifest that what was registered below one folder lies below another now; checksums are compared.

    `same_size`: takes a directory of another checksum, too, if it has as many files and bytes: a copy has other times on a
    disk, and in S3 other ETags where it was uploaded in parts. As often as one likes: what was told before is passed over.
    `limit`: so many items and no more. Raises Refused where a place is none, and LandingUnavailable.
    """
    try:
        before, after = storage.as_uri(old), storage.as_uri(new)
    except storage.UnsupportedLocation as error:
        raise Refused(str(error)) from error
    if before == after:
        raise Refused(f"{old} and {new} are one place")
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
    """The move of an item whose files are at the new place; where they are not, that is told."""
    landed, name = item.landed, item.key.name
    if landed is None or not landed.files:
        return Move(target)  # nothing says what its files were, or it has none
    try:
        there = pipeline.source.reread(replace(landed, content=target))
    except (LandingDamaged, LandingMisconfigured):
        needed = not (item.processed_by(Application(LOAD)) or item.skipped_for(Application(LOAD)))
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
