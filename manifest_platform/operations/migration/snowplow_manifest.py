"""Snowplow's Processing Manifest: rows of its DynamoDB table as histories of items.

Belongs here: the table's published layout (hash key `ItemId`, range key `Id`, a row for each record), the mapping of its
applications to ours, and the repair of one bug of its library. Pure: rows in, histories out.

Records of the shredder keep their application's name, because our load cannot read what it wrote: a run that it has shredded
and that nobody has loaded is shredded again. Records of the loader become our load's. A skip of either skips our step.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from manifest_platform.manifest import Application, Item, ItemKey, Payload, Record, State
from manifest_platform.manifest.payloads import LOCKED
from manifest_platform.manifest.payloads import problems as problems_of
from manifest_platform.operations.migration.attributes import Attributes, Row, shown
from manifest_platform.operations.migration.histories import Collector, Histories, Place, in_order

SHREDDERS = ("rdb-shredder", "snowplow-rdb-shredder")
LOADERS = ("rdb-loader", "snowplow-rdb-loader")

_STATES = {state.upper(): state for state in State}


class SeveralTargets(ValueError):
    """The table has loads into several targets: `--load` must name the target that becomes our load."""


@dataclass(frozen=True)
class Applications:
    """The mapping of the source's applications to ours.

    `load`: our step for the loader's records; `shred`: our step for a skip of the shredder. `loaders`: the names of the loader.
    `target`: its instance, if it loaded into several targets.
    """

    load: Application
    shred: Application
    shredders: tuple[str, ...] = SHREDDERS
    loaders: tuple[str, ...] = LOADERS
    target: str | None = None

    def ours(self, record: Record) -> Application:
        """Returns our application for a record of the source, with the source's version."""
        theirs = record.application
        skip = record.state is State.SKIPPED
        of_any_target = skip and theirs.instance is None
        if theirs.name in self.loaders and (of_any_target or self.target in (None, theirs.instance)):
            return dataclasses.replace(self.load, version=theirs.version)
        if theirs.name in self.shredders and skip:
            return dataclasses.replace(self.shred, version=theirs.version)
        return theirs

    def check_targets(self, records: Iterable[Record]) -> None:
        """Raises SeveralTargets if there are several targets and none was chosen."""
        found = {record.application.instance for record in records if record.application.name in self.loaders}
        targets = sorted(target for target in found if target is not None)
        if self.target is None and len(targets) > 1:
            raise SeveralTargets(
                f"the table has loads into {len(targets)} targets; choose one: --load {self.loaders[0]}:TARGET"
                f" with one of {', '.join(targets)}"
            )


def read_snowplow(rows: Iterable[Row], place: Place, applications: Applications) -> Histories:
    """Returns the histories of a table's rows. Items with a wrong row or with records that break the rules are left out.

    Raises SeveralTargets.
    """
    found, count = Collector(place), 0
    groups: dict[str, list[Record]] = {}
    spoilt: set[str] = set()
    for row in rows:
        count += 1
        record, wrong = read_row(row)
        if record:
            groups.setdefault(record.item, []).append(record)
        else:
            spoilt.add(shown(row, "ItemId"))
            found.leave_out(shown(row, "ItemId"), f"record {shown(row, 'Id')}: {'; '.join(wrong)}")
    applications.check_targets(record for records in groups.values() for record in records)
    for name in sorted(groups.keys() - spoilt):
        if key := found.key(name):
            records, repairs = repair_lost_races(groups[name])
            item, wrong = _item(key, records, applications)
            if wrong:
                found.leave_out(name, *wrong)
            else:
                found.keep(item, repairs)
    return found.histories(count)


def read_row(row: Row) -> tuple[Record | None, list[str]]:
    """Returns the record of a row under the source's own names, or None and all problems of the row."""
    read = Attributes(row)
    item, id_, previous = read.text("ItemId"), read.uuid("Id"), read.uuid("PreviousRecordId", optional=True)
    name, version, instance = read.text("AppName"), read.text("AppVer"), read.text("InstanceId", optional=True)
    author, at = read.text("Author"), read.time("Timestamp", timedelta(milliseconds=1))
    state = _STATES.get(read.text("RState") or "")
    if state is None and "S" in row.get("RState", {}):
        read.problems.append(f"RState must be one of {', '.join(_STATES)}, and is {row['RState']['S']!r}")
    payload, wrong = _payload(read.text("Data", optional=True))
    problems = [*read.problems, *wrong]
    if problems or None in (item, id_, name, version, author, at, state):
        return None, problems
    assert item and id_ and name and version and author and at and state
    return Record(item, 0, id_, state, Application(name, version, instance), author, at, previous, payload=payload), []


def _payload(text: str | None) -> tuple[Payload | None, list[str]]:
    if text is None:
        return None, []
    try:
        data = json.loads(text)
    except ValueError as error:
        return None, [f"Data is not JSON: {error}"]
    if not isinstance(data, dict) or not isinstance(data.get("schema"), str) or not isinstance(data.get("data"), dict):
        return None, ["Data is not self-describing JSON: it must be an object with a schema (text) and data (an object)"]
    return Payload(data["schema"], data["data"]), []


def repair_lost_races(records: Sequence[Record]) -> tuple[list[Record], list[str]]:
    """Links the Failed records that a lost race for a lock left without a link, and returns a note on each.

    The source's library writes such records, with the id of the failed Processing in the payload. Nothing else is repaired.
    """
    consumed = {record.previous for record in records}
    opened = {record.record_id: record for record in records if record.state is State.PROCESSING}
    repaired: list[Record] = []
    notes: list[str] = []
    for record in records:
        lost = _lost_race(record)
        own = opened.get(lost) if lost else None
        if own and lost not in consumed and own.application.key == record.application.key:
            repaired.append(dataclasses.replace(record, previous=lost))
            notes.append(
                f"record {record.record_id} (Failed, a lost race for the lock) now points at {lost}; it pointed at nothing"
            )
        else:
            repaired.append(record)
    return repaired, notes


def _lost_race(record: Record) -> str | None:
    """Returns the id of the Processing that lost its race, for a Failed record that itself points at nothing."""
    if record.state is not State.FAILED or record.previous or not record.payload or record.payload.schema != LOCKED:
        return None
    id_ = record.data.get("recordId")
    return id_ if isinstance(id_, str) else None


def _item(key: ItemKey, records: Sequence[Record], applications: Applications) -> tuple[Item, list[str]]:
    """Returns the item of a source's records, and all its problems."""
    own = [dataclasses.replace(record, item=key.id, application=applications.ours(record)) for record in records]
    own.sort(key=lambda record: (record.timestamp, record.record_id))
    as_told = Item(key, tuple(dataclasses.replace(record, sequence=at) for at, record in enumerate(own, start=1)))
    wrong = problems_of(as_told)
    return (as_told if wrong else Item(key, tuple(in_order(own)))), wrong
