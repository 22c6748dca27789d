"""Bad rows in the form that Snowplow publishes: self-describing JSON, one line each, in a folder for each kind.

Belongs here: the kind of each reason, and the fields of each kind. The same row always gives the same JSON: where a schema
wants the time of a failure, it gets the time of the event, because a clock would make shredding unrepeatable.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson

from manifest_platform import __version__
from manifest_platform.shred.batch import Beside
from manifest_platform.shred.rows import LONGEST_QUOTE, Reason, exact_text, max_length
from manifest_platform.sources.snowplow.fields import FIELDS, POSITION, Field
from manifest_platform.sources.snowplow.schemas.keys import is_key

if TYPE_CHECKING:
    import pyarrow as pa

VENDOR = "com.snowplowanalytics.snowplow.badrows"
VERSIONS = {
    "loader_parsing_error": "2-0-0",
    "loader_iglu_error": "2-0-1",
    "loader_runtime_error": "1-0-1",
    "generic_error": "1-0-0",
}
"""The kinds of bad rows, and the versions of their schemas."""

TOO_OLD = "too_old"
"""The reason of an event with a time before the oldest that is allowed."""

_OF_EVENTS = ("loader_iglu_error", "loader_runtime_error")
"""The kinds whose payload is the event as JSON."""
_DEEP = 500  # brackets; readers of JSON allow some 1,000 levels, and the cell is inside of four others
_PROCESSOR = {"artifact": "manifest-platform", "version": __version__[:32]}
_NO_TIME = "1970-01-01T00:00:00Z"
_TIME = re.compile(r"(\d{4}-\d{2}-\d{2}) (\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?)")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_MOST_FIELDS = 1024  # the largest number of fields that the schema allows
_LONGEST_KEY, _LONGEST_HISTORY = 32, 256
_SHORTER = {"se_label": 1000}  # where the schemas of bad rows allow less than the events table holds


def published(bad: pa.Table) -> Iterator[Beside]:
    """Yields the files of some rows of `bad`: a folder, the number of lines, and the lines."""
    lines: dict[str, list[bytes]] = defaultdict(list)
    for batch in bad.to_batches(max_chunksize=1000):
        for row in batch.to_pylist():
            name, data = bad_row(row)
            schema = f"iglu:{VENDOR}/{name}/jsonschema/{VERSIONS[name]}"
            lines[name].append(orjson.dumps({"schema": schema, "data": data}))
    for name, found in sorted(lines.items()):
        folder = f"vendor={VENDOR}/name={name}/format=json/model={VERSIONS[name][0]}"
        yield Beside(folder, len(found), b"\n".join([*found, b""]))


def bad_row(row: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Returns the kind of a row of `bad`, and its data by the published schema of that kind."""
    reasons: list[Reason] = orjson.loads(row["reasons"])
    text = exact_text(row)
    name = _kind(reasons, text)
    fields = text.split("\t")
    if name in _OF_EVENTS and (unfit := list(_unfit_cells(fields))):
        name, reasons = "loader_parsing_error", unfit
    failure: Any
    payload: Any = text
    if name == "loader_parsing_error":
        failure = _parsing(reasons, fields)
    elif name == "generic_error":
        failure = {"timestamp": _time_of(fields), "errors": [_message(reason) for reason in reasons]}
    else:
        payload = _event(fields)
        of_schemas = [reason for reason in reasons if "schema" in reason]
        is_iglu = name == "loader_iglu_error"
        failure = _iglu(of_schemas, fields) if is_iglu else "; ".join(_message(reason) for reason in reasons)
    return name, {"processor": _PROCESSOR, "failure": failure, "payload": payload}


def _unfit_cells(fields: Sequence[str]) -> Iterator[Reason]:
    """Yields a reason for each cell that is no JSON. A line that has enough reasons was not checked to its end."""
    for known, text in zip(FIELDS, fields, strict=True):
        if not known.is_json or not text:
            continue
        try:
            orjson.loads(text)  # alone, so that no text ends its object
            if text.count("[") + text.count("{") > _DEEP:
                orjson.loads(f"[[[[{text}]]]]")
        except orjson.JSONDecodeError as error:
            message = f"is no JSON: {error}"
            yield {"type": "field", "field": known.name, "value": text[:LONGEST_QUOTE], "message": message}


def is_unreadable(reasons: Sequence[Reason]) -> bool:
    """True if Snowplow's own steps would not even read the line as an event. No schema helps then."""
    return any(_is_of_parsing(reason) for reason in reasons)


def _kind(reasons: Sequence[Reason], text: str) -> str:
    """Returns the kind that the first of Snowplow's own steps would have made: parsing, times, schemas."""
    if any(reason["type"] == "too_long" for reason in reasons):
        return "generic_error"
    if is_unreadable(reasons):
        return "loader_parsing_error"
    if any(reason["type"] == TOO_OLD for reason in reasons):
        return "generic_error"
    if any("schema" in reason for reason in reasons):
        return "loader_iglu_error"
    return "loader_runtime_error" if text.count("\t") == len(FIELDS) - 1 else "generic_error"


def _is_of_parsing(reason: Reason) -> bool:
    if reason["type"] in ("not_tsv", "field_count", "field", "wrapper_schema"):
        return True
    if reason["type"] == "unknown_schema":
        return not is_key(reason["schema"])
    return reason["type"] == "entity" and "schema" not in reason


def _parsing(reasons: Sequence[Reason], fields: Sequence[str]) -> dict[str, Any]:
    types = {reason["type"] for reason in reasons}
    if "not_tsv" in types:
        return {"type": "NotTSV"}
    if "field_count" in types:
        return {"type": "FieldNumberMismatch", "fieldCount": min(len(fields), _MOST_FIELDS)}
    errors = []
    for reason in filter(_is_of_parsing, reasons):
        value = str(reason.get("value", reason.get("schema", "")))
        key = str(reason.get("field", ""))[:_LONGEST_KEY]
        errors.append({"type": "InvalidValue", "key": key, "value": value, "message": reason["message"]})
    return {"type": "RowDecodingError", "errors": errors}


def _iglu(reasons: Sequence[Reason], fields: Sequence[str]) -> list[dict[str, Any]]:
    """Returns a failure for each schema: it is in no registry, it is no table, or values break it."""
    failures: dict[tuple[str, str], dict[str, Any]] = {}
    for reason in reasons:
        schema = reason["schema"]
        if reason["type"] == "unknown_schema":
            found = {"error": "NotFound", "message": reason["message"][:_LONGEST_HISTORY]}
            asked = {"repository": "manifest-platform", "errors": [found], "attempts": 1, "lastAttempt": _time_of(fields)}
            error: dict[str, Any] = {"error": "ResolutionError", "lookupHistory": [asked]}
            failures.setdefault((schema, "unknown"), {"schemaKey": schema, "error": error})
        elif "path" in reason:
            error = {"error": "ValidationError", "dataReports": []}
            failure = failures.setdefault((schema, "data"), {"schemaKey": schema, "error": error})
            report = {
                "message": reason["message"],
                "path": ".".join(filter(None, ("$", reason["path"]))),
                "keyword": reason.get("keyword"),
                "targets": None,
            }
            failure["error"]["dataReports"].append(report)
        else:
            error = {"error": "ValidationError", "schemaIssues": []}
            failure = failures.setdefault((schema, "schema"), {"schemaKey": schema, "error": error})
            failure["error"]["schemaIssues"].append({"path": "$", "message": reason["message"]})
    return list(failures.values())


def _message(reason: Reason) -> str:
    subject = reason.get("schema") or reason.get("field")
    return f"{subject} {reason['message']}" if subject else reason["message"]


def _time_of(fields: Sequence[str]) -> str:
    """Returns the collector's time of an event, or a fixed time if it has none."""
    place = POSITION["collector_tstamp"]
    return (_time(fields[place]) if place < len(fields) else None) or _NO_TIME


def _time(text: str) -> str | None:
    found = _TIME.fullmatch(text)
    return f"{found[1]}T{found[2]}Z" if found else None


def _event(fields: Sequence[str]) -> dict[str, Any]:
    """Returns an event as JSON: every field by its name, null if it is empty."""
    return {field.name: _value(field, text) for field, text in zip(FIELDS, fields, strict=True)}


def _value(field: Field, text: str) -> Any:
    if not text:
        return None
    if field.is_json:
        return orjson.Fragment(text.replace("\r", " "))  # a space as well, where JSON allows it; a row is one line
    if field.type == "timestamp":
        return _time(text)
    if field.type == "boolean":
        return text == "1"
    if field.type == "integer":
        return int(text)
    if field.type == "uuid" or field.type.startswith("string"):
        return text[: _SHORTER.get(field.name) or max_length(field.type)]
    return orjson.Fragment(text) if _NUMBER.fullmatch(text) else float(text)
