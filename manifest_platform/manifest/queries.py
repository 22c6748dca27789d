"""Questions to a manifest about many items: which items an application has done, has left, has failed on, or is processing.

Belongs here: answers for people, and for programs that take part without a declared order. What may be claimed next is not
answered here: use `Manifest.next`.

Nothing here scans the log. Unfinished items are found as the steps find them: beyond an ordered step's swept watermark, and by
the rows of waiting items. Finished items have no such bound: `processed_by` walks from the newest item as far as the caller
goes. Applications are matched by name and instance, as in `Application.is_done_by`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from manifest_platform.manifest.choosing import FIRST_PAGE
from manifest_platform.manifest.dataset import PASSED, FeedState, Standing, Step, judge
from manifest_platform.manifest.errors import Refused
from manifest_platform.manifest.item import Item, ItemKey
from manifest_platform.manifest.manifest import Manifest
from manifest_platform.manifest.payloads import PROCESSED_TYPES, InvalidPayload, family
from manifest_platform.manifest.records import Application, Record, State
from manifest_platform.manifest.store import PAGE

_URI = re.compile(r"[a-z][a-z0-9+.-]*://[^/].*|file:///.+")


class Locked(Refused):
    """Items that failed or are being processed prevent a load; `records` are the records that block them."""

    def __init__(self, blocked: dict[ItemKey, Record]):
        self.records = tuple(blocked.values())
        said = (f"{key.name} by {record.application.key} ({record.state})" for key, record in blocked.items())
        super().__init__(
            f"blocked: {', '.join(said)}. Resolve or skip items that failed, and wait for items that are being processed"
        )


@dataclass(frozen=True)
class Prepared:
    """An item that is ready for a loader. `tables`: the families of its entities' schemas; a family shares one table."""

    item: Item
    tables: tuple[str, ...]


def unprocessed(
    manifest: Manifest, feed: str, application: Application, prepared_by: Application | None = None
) -> Iterator[Item]:
    """The items that a declared step has neither done nor skipped, blocked or not.

    `prepared_by`: only items that it has done. Bounded by the step's backlog and, for an unordered step, by the backlogs of its
    upstream steps. Left out: items set aside behind a watermark and, for an unordered step, items that an upstream step skips.
    Raises Refused for an application that is not a declared step: no row says what it has left to do.
    """
    step = manifest.step(feed, application.key)
    found = _open_items(manifest, feed, [step] if step.ordered else _with_upstream(manifest, feed, step))
    for item in found:
        passed = (
            not step.ordered and judge(item, step, FeedState()).standing in PASSED
        )  # an item that waits upstream may be passed
        if not passed and (prepared_by is None or item.processed_by(prepared_by)):
            yield item


def processed_by(
    manifest: Manifest, feed: str, application: Application, before: str | None = None, limit: int | None = None
) -> Iterator[Item]:
    """Yields the items that an application has done, newest first, at most `limit`; `before`: only items before that position.

    A walk, read page by page as far as the caller goes, from the watermark down for a strict step. If an application did few of
    a feed's items, the walk costs the pages between them. Work of an epoch that no longer serves does not count.
    """
    serving = manifest.serving_epochs(feed)
    start = before or _watermark(manifest, feed, application)
    page = min(PAGE, FIRST_PAGE * (limit or PAGE))
    items = manifest.items(feed, after=start, page=page, reverse=True)
    return islice((item for item in items if _is_done(item, application, serving)), limit)


def failed_by(manifest: Manifest, feed: str, application: Application) -> Iterator[Item]:
    """The items that an application failed on, each once, unless every step has passed them.

    Bounded by the backlogs of the feed's steps: a failed item is in the backlog of every step that has not skipped it.
    """
    return _blocked_by(manifest, feed, application, State.FAILED)


def locked_by(manifest: Manifest, feed: str, application: Application) -> Iterator[Item]:
    """The items that an application is processing, or was when it died; found and bounded as those of `failed_by`."""
    return _blocked_by(manifest, feed, application, State.PROCESSING)


def prepared(manifest: Manifest, feed: str, application: Application, prepared_by: Application) -> list[Prepared]:
    """The input of a loader: the items that `prepared_by` has done and the declared step `application` has not, in its order.

    Raises Locked if any item that the application has not done is blocked, whether or not `prepared_by` has done it;
    InvalidPayload with every item id that is not a URI and every type that is not a schema's.
    """
    serving = manifest.serving_epochs(feed)
    found: list[Prepared] = []
    blocked: dict[ItemKey, Record] = {}
    wrong: list[str] = []
    for item in unprocessed(manifest, feed, application):
        if blocker := item.blocker(serving):
            blocked[item.key] = blocker
        elif record := item.processed_by(prepared_by):
            found.append(Prepared(item, _tables(item, record, wrong)))
    if blocked:
        raise Locked(blocked)
    if wrong:
        raise InvalidPayload(f"feed {feed} cannot be loaded: {'; '.join(wrong)}")
    return found


def _tables(item: Item, record: Record, wrong: list[str]) -> tuple[str, ...]:
    """The families of the types that a shredder's payload names; faults are added to `wrong`."""
    if not _URI.fullmatch(item.key.id):
        wrong.append(f"item {item.key.id!r} is not the URI of a folder, such as s3://bucket/run=2026-01-01-00-00-00/")
    families: set[str] = set()
    if record.payload and record.payload.schema == PROCESSED_TYPES:
        for uri in record.data["shreddedTypes"]:
            try:
                families.add(family(uri))
            except ValueError as error:
                wrong.append(f"item {item.key.id}: {error}")
    return tuple(sorted(families))


def _blocked_by(manifest: Manifest, feed: str, application: Application, state: State) -> Iterator[Item]:
    serving = manifest.serving_epochs(feed)
    for item in _open_items(manifest, feed, manifest.steps(feed)):
        records = item.open_records(serving)
        if any(record.state is state and application.is_done_by(record.application) for record in records):
            yield item


def _open_items(manifest: Manifest, feed: str, steps: Sequence[Step]) -> Iterator[Item]:
    """The items that any of some steps has not passed, each once.

    Ordered steps come first, because they are read by the page.
    """
    seen: set[ItemKey] = set()
    for step in sorted(steps, key=lambda one: not one.ordered):
        name = step.application.key
        if step.ordered:
            open_ = (item for item, judged in manifest.backlog(feed, name) if judged.standing is not Standing.LATE)
        else:
            open_ = manifest.read(feed, (key for key in manifest.open_keys(feed, name) if key not in seen))
        for item in open_:
            if item.key not in seen:
                seen.add(item.key)
                yield item


def _with_upstream(manifest: Manifest, feed: str, step: Step) -> list[Step]:
    """A step and all its upstream steps: an item that is not done upstream has no row of the step itself."""
    found = [step]
    for one in found:
        names = [Application.parse(name) for name in one.upstream]
        found += [
            other
            for other in manifest.steps(feed)
            if other not in found and any(name.is_done_by(other.application) for name in names)
        ]
    return found


def _watermark(manifest: Manifest, feed: str, application: Application) -> str:
    """The position beyond which a strict step has done nothing yet; empty if there is no such bound."""
    strict = [step for step in manifest.steps(feed) if step.order == "strict" and step.application.key == application.key]
    watermark = manifest.state(application).feed(feed).watermark if strict else ""
    return f"{watermark}#~" if watermark else ""


def _is_done(item: Item, application: Application, serving: Mapping[str, int]) -> bool:
    """True if an application has done an item, in an epoch that serves."""
    return any(
        record.epoch is None or record.epoch >= serving.get(record.application.key, 0) for record in item.done_by(application)
    )
