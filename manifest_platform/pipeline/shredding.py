"""Shredding: a batch of claimed items becomes typed Parquet in one Spark job. Their records name the output."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from manifest_platform import failpoints, packs, storage
from manifest_platform.listing import BAD_TABLE, LISTING_FILE, Listing, ShreddedType, Table
from manifest_platform.manifest import (
    OUTPUT,
    Abandoned,
    Application,
    Claim,
    Failure,
    FailureKind,
    Holding,
    Item,
    ItemKey,
    Landed,
    Lease,
    Payload,
    Record,
    Refused,
    State,
    StoreError,
)
from manifest_platform.manifest.claims import MESSAGE_LIMIT
from manifest_platform.manifest.item import short_name
from manifest_platform.pipeline.events import ItemFailed, PutBack, Shredded, ShreddedAgain
from manifest_platform.pipeline.families import TableTaken, take_tables
from manifest_platform.pipeline.isolation import Isolation, NotCharged
from manifest_platform.pipeline.pipeline import Pipeline
from manifest_platform.pipeline.shredding_job import Shredding
from manifest_platform.quantities import count_of
from manifest_platform.remedies import Action, Remedy
from manifest_platform.shred.batch import Cause, Directory, ShredFailure, works
from manifest_platform.sources.errors import LandingDamaged, LandingError
from manifest_platform.sources.source import SHRED
from manifest_platform.spark import SparkUnavailable, cancellable
from manifest_platform.warehouse.errors import Unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


log = logging.getLogger(__name__)


class OutputGone(Refused):
    """Committed output is gone, or differs from what was written. Its item must be shredded again."""

    def __init__(self, message: str, item: str) -> None:
        self.what = message
        super().__init__(f"{message}; shred {item} again", Remedy(Action.RESHRED, item=item))


def free_abandoned(pipeline: Pipeline, lease: Lease, items: Iterable[Item]) -> int:
    """Frees the items that a dead worker left unshredded, and returns their number.

    No record names what it wrote, so nothing else must be asked. Holding the lease proves that the worker is dead.
    """
    freed = 0
    for item in items:
        blocker = item.blocker()
        if blocker and blocker.state is State.PROCESSING and blocker.application.key == SHRED:
            pipeline.manifest.abandon(lease, Abandoned(item, blocker))
            freed += 1
    return freed


def portion(items: Sequence[Item], most: int, application: Application = Application(SHRED)) -> list[Item]:  # noqa: B008 - frozen
    """Returns the oldest items that an application may work on together, at most `most`.

    A job that killed its worker does not tell which item was the cause. So its items are retried in batches of half the size,
    down to one, and apart from other items. Without this rule, 8 deaths caused by one of 40 items failed all 40.
    """
    died = items[0].died_with(application)
    size = most if died is None else max(1, min(most, died // 2))
    alike = itertools.takewhile(lambda item: item.died_with(application) == died, items)
    return list(itertools.islice(alike, size))


def shred(
    pipeline: Pipeline, lease: Lease, spark: Callable[[], SparkSession], items: Sequence[Item]
) -> list[Shredded | ItemFailed | PutBack]:
    """Shreds ready items with the session that `spark` returns. Raises as `ready_session` and `shred_with`."""
    return shred_with(pipeline, lease, ready_session(pipeline, spark), items)


def ready_session(pipeline: Pipeline, spark: Callable[[], SparkSession]) -> SparkSession:
    """Returns the session for shredding, before any claim, so that a Spark that does not start is charged to no item.

    Raises SparkUnavailable, NotTakenOver.
    """
    for target in pipeline.targets:
        pipeline.at(target).require_taken_over()
    return spark()


def shred_with(
    pipeline: Pipeline, lease: Lease, session: SparkSession, items: Sequence[Item]
) -> list[Shredded | ItemFailed | PutBack]:
    """Shreds ready items in one Spark job. Each item ends separately: Processed, Failed or put back.

    A fault that is not the item's puts it back: a landing, output or registry that cannot be reached or refuses access, or a
    lost Spark, a cluster that fails. A job that died is repeated by halves, until the directory that causes it is alone. Raises
    SparkUnavailable before any claim, LeaseLost. Any thread may call it: it uses no warehouse.
    """
    suspected = len(items) == 1 and items[0].died_with(Application(SHRED)) is not None
    if suspected and not works(session):
        raise SparkUnavailable("Spark has a session and runs no job; see Spark's log")
    started, requests = time.monotonic(), pipeline.manifest.store.requests
    left: dict[str, Claim] = {}
    with _put_back_at_the_end(pipeline, left):
        with lease.within(pipeline.config.limits.of("shred"), f"shredding {len(items)} directories"):
            left.update({one.item.key.id: one for one in pipeline.manifest.claim(lease, items)})
            count = len(left)
            with cancellable(session) as cancel, lease.canceling(cancel):
                results = list(_attempt(pipeline, lease, session, left))
        lease.check()
        seconds = time.monotonic() - started
        each = (pipeline.manifest.store.requests - requests) // max(1, count)
        outcomes: list[Shredded | ItemFailed | PutBack] = []
        for result in results:
            claim, before = left[result.item], pipeline.manifest.store.requests
            ended = _concluded(pipeline, claim, result, suspected)
            if isinstance(ended, Listing):
                used = each + pipeline.manifest.store.requests - before
                bytes_in = claim.item.landed.bytes if claim.item.landed else 0
                ended = Shredded(claim.item.key, ended, bytes_in, seconds, count, used)
            outcomes.append(ended)
            del left[result.item]
    return outcomes


def _concluded(
    pipeline: Pipeline, claim: Claim, result: Listing | ShredFailure, suspected: bool
) -> ItemFailed | PutBack | Listing:
    """Ends a claim by the result for its directory: completed (returns the listing), failed or put back."""
    if isinstance(result, ShredFailure):
        return _not_shredded(pipeline, claim, result, suspected)
    try:
        take_tables(pipeline, result)
    except TableTaken as error:
        return pipeline.fail(claim, Failure.of(error))
    pipeline.manifest.complete(claim, shredded_payload(result, f"{_output(pipeline, claim)}/{LISTING_FILE}"))
    failpoints.reach("shred.completed")
    return result


@contextlib.contextmanager
def _put_back_at_the_end(pipeline: Pipeline, claims: Mapping[str, Claim]) -> Generator[None]:
    """Puts claims back if the process is told to end, and adds their number as a note to the exception."""
    try:
        yield
    except Exception:
        raise
    except BaseException as end:
        left = 0
        for claim in claims.values():
            with contextlib.suppress(Refused, StoreError):
                pipeline.manifest.put_back(claim, "whoever shredded it was told to end")
                left += 1
        end.add_note(f"{count_of(left, 'directory was', 'directories were')} being shredded: put back, no attempt is counted")
        raise


LOSSES_ALONE = 2
"""The losses of Spark while an item was alone, before the next is charged to the item."""

_UNREACHED = 2
"""The number of unreachable directories, with none reachable, after which the landing as a whole counts as unreachable."""


def _attempt(
    pipeline: Pipeline, lease: Lease, session: SparkSession, claims: Mapping[str, Claim]
) -> Iterator[Listing | ShredFailure]:
    """Shreds claimed items, and yields a result for each."""
    directories: list[Directory] = []
    unreached: ShredFailure | None = None
    failures = 0
    for claim in claims.values():
        attempt = Directory(claim.item.key.id, (), "", claim.processing.record_id)
        if unreached and not directories and failures >= _UNREACHED:
            yield dataclasses.replace(unreached, item=attempt.item, attempt=attempt.attempt)
            continue
        try:
            found = pipeline.source.directory(claim, _output(pipeline, claim))
            directories.append(dataclasses.replace(found, replayed=_digests(claim.item)) if claim.item.replayed else found)
        except (LandingError, Refused, OSError) as error:
            failure = ShredFailure.of(attempt, error)
            if isinstance(error, LandingDamaged) and storage.is_missing(pipeline.source.root):
                message = f"{error}. Its landing root {pipeline.source.root} is missing too, so it may only be unreachable"
                failure = dataclasses.replace(failure, message=message, cause=Cause.OUTAGE)
            if failure.cause is not Cause.ITEM:
                unreached, failures = failure, failures + 1
            yield failure
    if directories:
        for directory, result in Isolation(Shredding(pipeline, lease, session, claims)).results(directories):
            if isinstance(result, NotCharged):
                result = ShredFailure(directory.item, directory.attempt, result.reason, Cause.OUTAGE)
            yield result


def _not_shredded(pipeline: Pipeline, claim: Claim, result: ShredFailure, suspected: bool) -> ItemFailed | PutBack:
    """Ends a claim that gave no output. `suspected`: it was alone, after a death, and Spark worked just before.

    A loss of Spark is charged to a suspected item only after others that it was alone with, too: a cluster may go down at any
    moment, and a directory that takes it down does so again.
    """
    if result.cause is Cause.ITEM:
        failure = Failure.of(result.error) if result.error else _failure(result)
        return pipeline.fail(claim, failure)
    takes_spark_down = suspected and claim.item.deaths_alone(Application(SHRED)) >= LOSSES_ALONE
    if result.cause is Cause.DIED or (result.cause is Cause.LOST and takes_spark_down):
        return pipeline.fail(claim, Failure(FailureKind.TRANSIENT, f"shredded alone: {result.message}"))
    pipeline.manifest.put_back(claim, result.message[:MESSAGE_LIMIT], died=result.cause is Cause.LOST)
    return PutBack(claim.item.key, SHRED, result.message)


def _failure(result: ShredFailure) -> Failure:
    """Returns the failure of a directory that Spark reported by a message."""
    return Failure(FailureKind.PERMANENT, result.message, remedy=result.helps.name if result.helps else None)


def _output(pipeline: Pipeline, claim: Claim) -> str:
    return f"{pipeline.folder(claim.item.key)}/{claim.processing.record_id}"


TYPES_KEPT = 64
"""The maximum number of types in a record of shredding, those with the most rows. The listing has all; rows cost by size."""


REMARKS_KEPT = 16
"""The maximum number of remarks in a record of shredding. The drain has told all of them."""


def shredded_payload(listing: Listing, uri: str) -> Payload:
    """Returns the payload of a shredding's Processed record: the place of the listing, its counts, tables and types."""
    tables = sorted({table.name for table in listing.tables if table.mode != "delete"} - {BAD_TABLE})
    data = {
        "listing": uri,
        "lines": listing.lines,
        "good": listing.good,
        "bad": listing.bad,
        "bytes": listing.bytes,
        "tables": tables,
    }
    if listing.duplicates:
        data["duplicates"] = dataclasses.asdict(listing.duplicates)
    if listing.remarks:
        data["remarks"] = listing.remarks[:REMARKS_KEPT]
    if listing.types:
        most = sorted(listing.types, key=lambda one: (-one.rows, one.type))
        types: dict[str, dict[str, int]] = {}
        for one in most[:TYPES_KEPT]:
            types.setdefault(one.table, {})[one.type] = one.rows
        data["types"] = types
        if len(most) > TYPES_KEPT:
            data["more_types"] = len(most) - TYPES_KEPT
    return Payload(OUTPUT, data)


# Shredded output, as the manifest's records name it


def shredded_bytes(item: Item) -> int:
    """Returns the bytes of Parquet that the completed shredding of an item wrote, from its record."""
    record = item.processed_by(Application(SHRED))
    return record.data["bytes"] if record else 0


def types_of(record: Record) -> list[ShreddedType]:
    """Returns the types in a shredding's record, or in its listing if that has more.

    Empty if neither has types, as in records of earlier releases. Raises OutputGone, Unavailable.
    """
    data = record.data
    if data.get("more_types") and "listing" in data:
        return list(_read_listing(data["listing"], short_name(record.item)).types)
    return kept_types(record)


def kept_types(record: Record) -> list[ShreddedType]:
    """Returns the types that a shredding's record itself has: all, or those with the most rows."""
    said = record.data.get("types")
    found = said.items() if isinstance(said, dict) else ()  # a user's own program may have written the record
    return [
        ShreddedType(type_, table, rows)
        for table, types in found
        if isinstance(types, dict)
        for type_, rows in types.items()
        if isinstance(rows, int)
    ]


def recent_tables(pipeline: Pipeline, records: int) -> list[Table]:
    """Returns the tables of the newest shredded items, by name. `records`: the number of newest records read of each feed.

    Items whose listing is gone are passed over.
    """
    tables: dict[str, Table] = {}
    for record in (record for feed in pipeline.feeds for record in pipeline.manifest.newest(feed, records, State.PROCESSED)):
        listing = record.data.get("listing")
        named = set(record.data.get("tables", ())) if record.application.name == SHRED else set()
        if listing and named - tables.keys():
            with contextlib.suppress(OutputGone):
                tables = {table.name: table for table in _read_listing(listing, short_name(record.item)).tables} | tables
    return [tables[name] for name in sorted(tables) if tables[name].mode != "delete"]


def listing_of(item: Item) -> Listing:
    """Returns the listing of an item's completed shredding. Raises Refused if it is not shredded, OutputGone, Unavailable."""
    record = item.processed_by(Application(SHRED))
    if record is None:
        raise Refused(f"{item.key.name} is not shredded yet")
    if deleted := item.deletion_of(Holding.SHREDDED):
        raise OutputGone(f"its shredded output was {by_retention(deleted)}", item.key.name)
    return _read_listing(record.data["listing"], item.key.name)


def bad_listing_of(item: Item) -> Listing:
    """Returns the listing of an item whose bad rows will be read. Raises as `listing_of`."""
    if deleted := item.deletion_of(Holding.BAD):
        raise OutputGone(f"its bad rows were {by_retention(deleted)}", item.key.name)
    return listing_of(item)


def by_retention(deletion: Record) -> str:
    """Returns the words that say when retention deleted something."""
    return f"deleted by retention on {deletion.timestamp:%Y-%m-%d}"


def files_of(item: Item, table: str | None = None) -> Listing:
    """Returns an item's listing with a file for each object, or for each of a table, which are made from packs if necessary.

    Raises as `listing_of`.
    """
    listing = listing_of(item)
    try:
        return packs.spread(listing, table)
    except (FileNotFoundError, packs.PackDamaged) as error:
        raise OutputGone(str(error), item.key.name) from error
    except OSError as error:
        raise Unavailable(f"packed objects of {item.key.name} cannot be read or written now: {error}") from error


def _read_listing(uri: str, item: str) -> Listing:
    try:
        return Listing.read(uri)
    except FileNotFoundError as error:
        raise OutputGone(f"the listing {uri} is gone, though the manifest names it", item) from error
    except (ValueError, KeyError, TypeError) as error:
        raise OutputGone(f"the listing {uri} is damaged ({error})", item) from error
    except OSError as error:
        raise Unavailable(f"the listing {uri} cannot be read now: {error}") from error


# Replayed lines


class ReplayedLines:
    """The lines of an item that were replayed, known by their bytes.

    Their places do not tell them: after the landing moved or the directory was rewritten, a line is at another place, and its
    event was loaded twice. Raises Refused, OSError, as `_replayed`.
    """

    def __init__(self, item: Item) -> None:
        self._left = Counter(digest for _, lines in _replayed(item) for digest in lines)

    def __bool__(self) -> bool:
        return bool(self._left)

    def takes(self, line: bytes | None) -> bool:
        """True if this is a replayed line, asked about each bad row once: of equal lines, as many as were replayed are."""
        if line is None or not self._left:
            return False
        from manifest_platform.shred.rows import digest_of

        digest = digest_of(line)
        if not self._left[digest]:
            return False
        self._left[digest] -= 1
        return True


def _digests(item: Item) -> dict[str, str]:
    """Returns the digests of an item's replayed lines, each with the name of the item that they are loaded with."""
    return {digest: into for into, lines in _replayed(item) for digest in lines}


def _replayed(item: Item) -> Iterator[tuple[str, list[str]]]:
    """Yields the replays of an item's lines: the item that they went to, and the digest of each line.

    Raises Refused if a file that names the lines is gone: without it they would be loaded twice. Raises OSError.
    """
    for record in item.replayed:
        said = record.data["replayed"]
        try:
            named = json.loads(storage.read_bytes(said["file"]))
        except FileNotFoundError as error:
            message = f"{said['file']} is gone, which names the lines of {item.key.name} that were replayed: restore it"
            raise Refused(f"{message} from a backup") from error
        yield short_name(said["item"]), [digest for _, _, digest in named["lines"][item.key.id]]


# Lost output


def check_objects(listing: Listing, content: bool = False) -> None:
    """Raises OutputGone if an object of a listing is gone, has another size, or with `content` has another checksum.

    Raises Unavailable if the storage cannot be asked. For an object without a known checksum, only the size is compared.
    """
    for found in listing.stored:
        if problem := object_problem(found.uri, found.bytes, found.checksum if content else None):
            raise OutputGone(problem, short_name(listing.item))


def object_problem(uri: str, size: int, checksum: str | None = None) -> str:
    """Returns the fault of an object; empty if it is as its listing says. Raises Unavailable."""
    system, path = storage.filesystem(uri)
    try:
        there = system.get_file_info(path).size
        if there is None:
            return f"{uri} is gone"
        if there != size:
            return f"{uri} has {there:,} bytes, and {size:,} were written"
        if checksum and storage.checksum(storage.read_bytes(uri)) != checksum:
            return f"{uri} has other bytes than were written"
    except FileNotFoundError:
        return f"{uri} is gone"
    except OSError as error:
        raise Unavailable(f"{uri} cannot be read now: {error}") from error
    return ""


@dataclasses.dataclass(frozen=True)
class LandingProblem:
    """The difference between an item's directory and the registered one. `remedy`: None if it is not known."""

    text: str
    remedy: Remedy | None = None

    def __str__(self) -> str:
        return self.text


def landing_problem(pipeline: Pipeline, item: Item) -> LandingProblem | None:
    """Returns the reason why shredding an item again cannot give the same output; None if its directory is unchanged.

    Raises Unavailable if the landing cannot be asked.
    """
    landed = item.landed
    if landed is None:
        return LandingProblem("the manifest does not know where its files are")
    if landed.files == 0:
        return None  # an empty window has no files
    deleted = item.deletion_of(Holding.LANDING)
    if deleted and pipeline.manifest.is_being_deleted(item.key):
        return LandingProblem(f"{landed.place} is being {by_retention(deleted)}", Remedy(Action.COLLECT))
    problem = _landing_differs(pipeline, item, landed)
    if problem and deleted:
        return LandingProblem(f"{landed.place} was {by_retention(deleted)}. Restore it from a backup, as it was")
    return problem


def _landing_differs(pipeline: Pipeline, item: Item, landed: Landed) -> LandingProblem | None:
    """Returns the difference between a directory and the registered one. Raises Unavailable."""
    try:
        seen = pipeline.source.reread(landed)
    except (LandingDamaged, ValueError) as error:
        return LandingProblem(str(error))
    except LandingError as error:
        raise Unavailable(f"{landed.place} cannot be looked at now: {error}") from error
    if seen.checksum == landed.checksum:
        return None
    return LandingProblem(f"{landed.place} was rewritten since", Remedy(Action.ACCEPT, item=item.key.name))


def send_back(pipeline: Pipeline, claim: Claim, gone: OutputGone) -> ShreddedAgain | ItemFailed:
    """Ends the load of an item whose output is lost. If its directory is intact, it is shredded again automatically, once.

    If the output is lost again, or the directory is lost too, the item fails and waits for a person.
    """
    try:
        problem = landing_problem(pipeline, claim.item)
    except Unavailable as error:
        pipeline.manifest.put_back(claim, str(error))
        raise
    if problem:
        lost = f"{gone.what}, and its input too: {problem.text.rstrip('.')}. Restore one of the two from a backup"
        if problem.remedy:
            lost += ", or accept the directory as it is now"
        helps = problem.remedy.action.name if problem.remedy else None
        return pipeline.fail(claim, Failure(FailureKind.PERMANENT, lost, type(gone).__name__, remedy=helps))
    if claim.item.was_sent_back(Application(SHRED)):
        return pipeline.fail(claim, Failure.of(gone))
    pipeline.manifest.send_back(claim, [SHRED], str(gone))
    return ShreddedAgain(claim.item.key, str(gone))


def shred_again(pipeline: Pipeline, key: ItemKey, reason: str) -> bool:
    """Makes an item with lost output be shredded again. Returns False if it was already, or if its directory is not intact."""
    item = pipeline.manifest.item(key)
    application = Application(SHRED)
    if not item.processed_by(application) or item.was_sent_back(application) or landing_problem(pipeline, item):
        return False
    pipeline.manifest.reopen(key, [SHRED], reason, automatic=True, read=item)
    return True
