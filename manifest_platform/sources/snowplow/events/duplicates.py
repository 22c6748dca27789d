"""The duplicates of events in a directory: finds them by a pass over the bytes of lines, and marks their lines.

Natural duplicates are lines with the same event id and the same fingerprint: a tracker or a collector sent an event twice. The
best of them stays, the others are left out: a good line goes before a bad one, then the earliest `etl_tstamp` decides. Which
lines are bad, the bytes looked at here do not tell, so the caller shreds the copies and gives their ranks. Synthetic
duplicates are the lines of an id that are still several then: other software made their ids, for example a copied page. Each of
them stays, under a new id that is derived from the id, the fingerprint and the place of the line, and gets a context with its
original id.

A line that has another number of fields, or no valid id, is no event and takes no part. A line without a fingerprint is never a
natural duplicate. Nothing here depends on how a directory is divided into tasks: the place of a line is its file and the byte
where it begins in the file's text.
"""

from __future__ import annotations

import re
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from manifest_platform.sources.snowplow import numbers
from manifest_platform.sources.snowplow.events.atomic import Lines, field_ends
from manifest_platform.sources.snowplow.fields import FIELDS, POSITION
from manifest_platform.sources.snowplow.rules import Kinds

DUPLICATE = "iglu:com.snowplowanalytics.snowplow/duplicate/jsonschema/1-0-0"
"""The schema of the context that a synthetic duplicate gets."""

LEFT_OUT, RENAMED, COPY = 0, 1, 2

LOADED, GOOD, FAULTY, UNREADABLE = 0, 1, 2, 3
"""The ranks of the copies of an event. Of the smallest rank one stays, and the others are left out.

LOADED: the line is loaded with another item, to which it was replayed. FAULTY: the line is bad, and may become good once a
schema is mended. UNREADABLE: no schema helps.
"""

_WRAPPER = "iglu:com.snowplowanalytics.snowplow/contexts/jsonschema/1-0-0"
_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, DUPLICATE)
_ID, _ETL, _FINGERPRINT, _DERIVED = (
    POSITION[name] for name in ("event_id", "etl_tstamp", "event_fingerprint", "derived_contexts")
)
_TAB, _NEWLINE, _DASH = 9, 10, 45
_DASHES = np.array([8, 13, 18, 23])
_HEX = np.setdiff1d(np.arange(36), _DASHES)
_TOO_DEEP = b"(nested too deeply)"  # no JSON, so that the event is bad; its bad row has the cell as it was
# The end of a wrapper: the bracket that closes its data, and what may follow it.
_END_OF_DATA = re.compile(rb'\]\s*(,\s*"schema"\s*:\s*"[^"\\]*"\s*)?\}\s*\Z')

IDENTITIES = pa.schema(
    {
        "high": pa.int64(),
        "low": pa.int64(),
        "place": pa.int64(),
        "offset": pa.int64(),
        "fingerprint": pa.binary(),
        "etl": pa.binary(),
    }
)
"""The columns by which lines are compared.

`high`, `low`: the event id. `place`: the caller's number for the piece of a file, ascending with file and offset. `offset`: the
byte in the file's text where the line begins. `etl`: the text of `etl_tstamp`.
"""


# Finding


def identities(data: bytes, place: int = 0, offset: int = 0) -> pa.RecordBatch:
    """Returns the identity of each line that may be an event, as IDENTITIES. `offset`: that of the first line.

    Accepts any bytes. Only the ends of fields, the ids, the fingerprints and the times are looked at.
    """
    if data and not data.endswith(b"\n"):
        data += b"\n"
    buffer = np.frombuffer(data, np.uint8)
    ends = field_ends(buffer)
    last = np.flatnonzero(buffer[ends] == _NEWLINE)
    whole = last[np.diff(last, prepend=-1) == len(FIELDS)]  # the last field of each line with the right number of fields
    first = whole - (len(FIELDS) - 1)
    begins = np.where(first > 0, ends[first - 1] + 1, 0) if len(ends) else first
    high, low, valid = _ids(buffer, ends[first + _ID - 1] + 1, ends[first + _ID])
    first, begins = first[valid], begins[valid]
    return pa.RecordBatch.from_arrays(
        [
            pa.array(high[valid]),
            pa.array(low[valid]),
            pa.array(np.full(len(first), place, np.int64)),
            pa.array(begins.astype(np.int64) + offset),
            _cells(data, ends, first + _FINGERPRINT),
            _cells(data, ends, first + _ETL),
        ],
        schema=IDENTITIES,
    )


def _ids(buffer: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the halves of each id as integers, and where the id is valid. Upper and lower case are the same id."""
    fits = ends - starts == len("c6ef3124-b53a-4b13-a233-0088f79dcbcb")
    text = (
        buffer[np.where(fits, starts, 0)[:, None] + np.arange(36)]
        if len(buffer) >= 36
        else np.zeros((len(starts), 36), np.uint8)
    )
    digits = text[:, _HEX]
    letters = (digits | 0x20) - 87  # 10 to 15 for letters a to f
    numbers = digits - 48
    is_number, is_letter = numbers < 10, (letters >= 10) & (letters < 16)
    valid = fits & (is_number | is_letter).all(axis=1) & (text[:, _DASHES] == _DASH).all(axis=1)
    nibbles = np.where(is_number, numbers, letters)
    halves = np.ascontiguousarray((nibbles[:, 0::2] << 4) | (nibbles[:, 1::2] & 15)).view(">i8").astype(np.int64)
    return halves[:, 0], halves[:, 1], valid


def _cells(data: bytes, ends: np.ndarray, places: np.ndarray) -> pa.Array:
    spans = zip((ends[places - 1] + 1).tolist(), ends[places].tolist(), strict=True)
    return pa.array([data[start:end] for start, end in spans], pa.binary())


def repeated(found: Iterable[pa.RecordBatch]) -> pa.Table:
    """Returns the identities whose id occurs more than once, sorted by id, and within an id by place."""
    batches = list(found)
    if not batches:
        return IDENTITIES.empty_table()
    table = pa.Table.from_batches(batches)
    high, low = table["high"].to_numpy(), table["low"].to_numpy()
    order = np.lexsort((low, high))
    high, low = high[order], low[order]
    same = np.flatnonzero((high[1:] == high[:-1]) & (low[1:] == low[:-1]))
    several = np.union1d(same, same + 1)
    return table.take(pa.array(order[several])).sort_by([(name, "ascending") for name in ("high", "low", "place", "offset")])


@dataclass(frozen=True)
class Marks:
    """Some lines of a directory: of each, its place, its offset and a verdict on it, such as LEFT_OUT, or its rank."""

    places: np.ndarray
    offsets: np.ndarray
    verdicts: np.ndarray

    def __len__(self) -> int:
        return len(self.places)

    def of(self, place: int) -> PieceMarks | None:
        """Returns the marks of a piece; None if it has none."""
        mine = self.places == place
        if not mine.any():
            return None
        order = np.argsort(self.offsets[mine], kind="stable")
        return PieceMarks(self.offsets[mine][order], self.verdicts[mine][order])


NONE = Marks(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int8))
"""No marks."""


def decide(found: pa.Table, kinds: Kinds, ranks: Marks = NONE) -> Marks:
    """Returns the marks LEFT_OUT and RENAMED of repeated identities, which are sorted as `repeated` returns them.

    `ranks`: the ranks of natural duplicates; those that are not named are good.
    """
    places, offsets = found["place"].to_numpy(), found["offset"].to_numpy()
    fingerprints, times = found["fingerprint"].to_pylist(), found["etl"].to_pylist()
    order = list(zip(_ranks(places, offsets, ranks).tolist(), map(_time, times), strict=True))
    marked: dict[int, int] = {}
    for start, end in _of_one_id(found):
        stay = list(range(start, end))
        if kinds.natural:
            stay = _without_natural(stay, fingerprints, order)
            marked |= dict.fromkeys(set(range(start, end)).difference(stay), LEFT_OUT)
        if kinds.synthetic and len(stay) > 1:
            marked |= dict.fromkeys(stay, RENAMED)
    rows = np.array(sorted(marked), np.int64)
    return Marks(places[rows], offsets[rows], np.array([marked[row] for row in rows.tolist()], np.int8))


def natural(found: pa.Table) -> Marks:
    """Returns the natural duplicates among repeated identities, each marked COPY. One of each event will stay."""
    fingerprints = found["fingerprint"].to_pylist()
    copies: list[int] = []
    for start, end in _of_one_id(found):
        counts = Counter(fingerprints[start:end])
        copies += [row for row in range(start, end) if fingerprints[row] and counts[fingerprints[row]] > 1]
    rows = np.array(copies, np.int64)
    return Marks(found["place"].to_numpy()[rows], found["offset"].to_numpy()[rows], np.full(len(rows), COPY, np.int8))


def _of_one_id(found: pa.Table) -> Iterator[tuple[int, int]]:
    """Yields the first row of each id and the one after its last."""
    high, low = found["high"].to_numpy(), found["low"].to_numpy()
    changes = np.flatnonzero((high[1:] != high[:-1]) | (low[1:] != low[:-1])) + 1
    yield from pairwise([0, *changes.tolist(), len(found)])


def _ranks(places: np.ndarray, offsets: np.ndarray, known: Marks) -> np.ndarray:
    ranks = np.full(len(places), GOOD, np.int8)
    for place in np.unique(known.places).tolist():
        piece = known.of(place)
        here = np.flatnonzero(places == place)
        if piece is not None and len(here):
            at = np.minimum(np.searchsorted(piece.offsets, offsets[here]), len(piece.offsets) - 1)
            is_known = piece.offsets[at] == offsets[here]
            ranks[here[is_known]] = piece.verdicts[at[is_known]]
    return ranks


_Order = tuple[int, tuple[bool, bytes]]


def _without_natural(rows: list[int], fingerprints: list[bytes], order: list[_Order]) -> list[int]:
    """Returns the rows that stay: of each fingerprint the first in order, or else the first."""
    best: dict[bytes, int] = {}
    for row in rows:
        other = best.setdefault(fingerprints[row], row)
        if order[row] < order[other]:
            best[fingerprints[row]] = row
    return [row for row in rows if not fingerprints[row] or best[fingerprints[row]] == row]


def _time(text: bytes) -> tuple[bool, bytes]:
    """Returns the sort key of an `etl_tstamp`: texts of that form sort as their times, and a missing time is the last."""
    return not text, text


# Marking


@dataclass(frozen=True)
class PieceMarks:
    """The marks of the lines of a piece, by ascending offset."""

    offsets: np.ndarray
    verdicts: np.ndarray

    def lines(self, data: bytes, offset: int) -> Iterator[tuple[int, bytes]]:
        """Yields the offset and the bytes of each marked line of a chunk that begins at an offset of a file."""
        first, last = np.searchsorted(self.offsets, [offset, offset + len(data)])
        for start in (self.offsets[first:last] - offset).tolist():
            newline = data.find(b"\n", start)
            yield offset + start, data[start : newline if newline >= 0 else len(data)]

    def within(self, data: bytes, offset: int, file: str) -> Marked | None:
        """Returns the marked lines of a chunk that begins at an offset of a file; None without any."""
        first, last = np.searchsorted(self.offsets, [offset, offset + len(data)])
        if first == last:
            return None
        begins = self.offsets[first:last] - offset
        verdicts = self.verdicts[first:last]
        newlines = np.flatnonzero(np.frombuffer(data, np.uint8) == _NEWLINE)
        numbers = np.searchsorted(newlines, begins).tolist()  # the newlines before a line are its number
        return Marked.of(data, list(zip(numbers, begins.tolist(), verdicts.tolist(), strict=True)), offset, file)


@dataclass(frozen=True)
class Marked:
    """A chunk whose marked lines are rewritten: a line that is left out is empty, a renamed event has its new id and context.

    The numbers of lines stay as they were. `source`: the chunk as it was. `left_out`, `renamed`: the numbers of these lines.
    """

    data: bytes
    source: bytes
    left_out: frozenset[int]
    renamed: frozenset[int]

    @classmethod
    def of(cls, data: bytes, lines: list[tuple[int, int, int]], offset: int, file: str) -> Marked:
        """Rewrites lines, given as (number, start, verdict), ascending."""
        parts: list[bytes] = []
        numbers: dict[int, set[int]] = {LEFT_OUT: set(), RENAMED: set()}
        done = 0
        for number, start, verdict in lines:
            newline = data.find(b"\n", start)
            end = newline if newline >= 0 else len(data)
            parts.append(data[done:start])
            numbers[verdict].add(number)
            if verdict == LEFT_OUT:
                parts.append(b"" if newline >= 0 else b"\n")
            else:
                parts.append(renamed(data[start:end], f"{file}#{offset + start}"))
            done = end
        return cls(b"".join([*parts, data[done:]]), data, frozenset(numbers[LEFT_OUT]), frozenset(numbers[RENAMED]))

    def mend(self, lines: Lines) -> None:
        """Takes the reasons from the lines that are left out: they are not bad. Bad lines keep their bytes as they were."""
        for number in self.left_out:
            lines.reasons.pop(number, None)
        lines.source = self.source


def renamed(line: bytes, place: str) -> bytes:
    """Returns the line of an event with an id derived from its id, its fingerprint and its place, and with its original id."""
    fields = line.split(b"\t")
    original = fields[_ID].decode().lower()
    text = "\n".join((original, fields[_FINGERPRINT].decode("utf-8", "replace"), place))
    fields[_ID] = str(uuid.uuid5(_NAMESPACE, text)).encode()
    fields[_DERIVED] = _with_context(fields[_DERIVED], {"schema": DUPLICATE, "data": {"originalEventId": original}})
    return b"\t".join(fields)


def _with_context(cell: bytes, context: dict[str, Any]) -> bytes:
    """Returns the cell of derived contexts with one more. A cell that is none stays as it is: its event is bad.

    The text is added to, not written again, so that the numbers in other contexts keep their digits.
    """
    if not cell:
        return orjson.dumps({"schema": _WRAPPER, "data": [context]})
    try:
        wrapper = orjson.loads(cell)
    except orjson.JSONDecodeError:
        return cell
    inside = wrapper.get("data") if type(wrapper) is dict else None
    if type(inside) is not list:
        return cell
    ending = _END_OF_DATA.search(cell)
    keys = list(wrapper)
    if ending and keys in (["schema", "data"], ["data", "schema"]) and bool(ending[1]) == (keys[-1] == "schema"):
        separator = b"," if inside else b""
        return cell[: ending.start()] + separator + orjson.dumps(context) + cell[ending.start() :]
    try:
        wrapper = numbers.loads(cell)
        return numbers.dumps({**wrapper, "data": [*wrapper["data"], context]})
    except orjson.JSONDecodeError:
        return cell
    except TypeError:
        return _TOO_DEEP
