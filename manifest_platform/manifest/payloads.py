"""The payloads of records: JSON that names its JSON Schema, and must fit it.

Belongs here: the known schemas, and the check of a payload against its own schema. The schemas below `schemas/` are built in:
this package's, and those of Snowplow's manifest and shredder. A schema's URI has one meaning everywhere, so a schema is
registered for the whole process. The data in each payload of this package is described in `records`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from manifest_platform.manifest.item import Item
from manifest_platform.manifest.records import Payload, Record

if TYPE_CHECKING:
    from jsonschema import ValidationError
    from jsonschema.protocols import Validator

LOCKED = "iglu:com.snowplowanalytics.manifest/locked_payload/jsonschema/1-0-0"
"""Snowplow's Failed of a lock that was not got: {recordId}."""
APPLICATION_ERROR = "iglu:com.snowplowanalytics.snowplow/application_error/jsonschema/1-0-2"
"""Snowplow's Failed: {programmingLanguage, message, exceptionName?, stackTrace?, causeStackTrace?, …}."""
PROCESSED_TYPES = "iglu:com.snowplowanalytics.snowplow.storage.rdbshredder/processed_payload/jsonschema/1-0-0"
"""Processed of Snowplow's shredder: {shreddedTypes: [schema URIs]}."""

SHOWN = 80
"""The number of characters of a wrong value that a message shows."""

_URI = re.compile(
    r"iglu:(?P<vendor>[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*)/(?P<name>[A-Za-z0-9_-]+)/jsonschema"
    r"/(?P<model>[1-9][0-9]*)-(?P<revision>0|[1-9][0-9]*)-(?P<addition>0|[1-9][0-9]*)"
)
_BUILT_IN = Path(__file__).parent / "schemas"
_folders: list[Path] = [_BUILT_IN]
_registered: dict[str, dict[str, Any]] = {}


class InvalidPayload(ValueError):
    """A payload that does not fit its schema, or whose schema is not known; the message names every fault."""


class InvalidSchema(ValueError):
    """A registered schema that is not valid, or not the schema that its place says."""


@dataclass(frozen=True)
class Violation:
    """A fault of a payload: its path (`$` is the whole payload), the value there, and the rule that it breaks."""

    path: str
    value: Any
    rule: str

    def __str__(self) -> str:
        shown = repr(self.value)
        shown = shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}… ({len(shown):,} characters)"
        return f"{self.path}: {shown} breaks {self.rule}"


def check(record: Record) -> None:
    """Raises InvalidPayload, with every violation, for a record whose payload does not fit its schema."""
    payload = record.payload
    found = violations(payload) if payload else []
    if payload and found:
        broken = "; ".join(str(one) for one in found)
        raise InvalidPayload(f"the payload of a {record.state} of {record.item} does not fit {payload.schema}: {broken}")


def violations(payload: Payload) -> list[Violation]:
    """All violations of a payload's schema. Raises InvalidPayload if the schema is not known, InvalidSchema."""
    try:
        json.dumps(payload.data, allow_nan=False, ensure_ascii=False).encode()  # half a surrogate pair is not valid text
    except (TypeError, ValueError, RecursionError) as error:
        return [Violation("$", payload.data, f"JSON: {error}")]
    from referencing.exceptions import Unresolvable

    try:
        errors = list(_validator(payload.schema).iter_errors(payload.data))
    except Unresolvable as error:
        raise InvalidSchema(
            f"{payload.schema} refers to {error.ref}: a schema must be self-contained, because nothing is fetched"
        ) from error
    found = [Violation(error.json_path, error.instance, _rule(error)) for error in errors]
    return sorted(found, key=lambda one: (one.path, one.rule))


def problems(item: Item) -> list[str]:
    """All faults of an item's stored records: rules of the log that they break, and payloads that do not fit."""
    found = item.problems
    for record in item.records:
        try:
            check(record)
        except InvalidPayload as error:
            found.append(f"record {record.record_id}: {error}")
    return found


def family(uri: str) -> str:
    """A schema's URI without revision and addition: the schemas that share one table. Raises ValueError for other text."""
    parts = _parts(uri)
    return f"iglu:{parts['vendor']}/{parts['name']}/jsonschema/{parts['model']}"


def register(schemas: Mapping[str, dict[str, Any]]) -> None:
    """Registers schemas by their URIs. Raises InvalidSchema for an invalid schema, ValueError for a URI with other content."""
    for uri, schema in schemas.items():
        _compiled(uri, schema, uri)
        known = _find(uri)
        if known is not None and known[0] != schema:
            raise ValueError(f"{uri} is known with other content ({known[1]}): a changed schema needs a new version")
    _registered.update(schemas)


def register_folder(folder: Path) -> None:
    """Registers the schemas of a folder, laid out as `[schemas/]vendor/name/jsonschema/1-0-0`.

    They are read when first needed. A schema that is known already has priority. Raises ValueError if the folder does not
    exist.
    """
    if not folder.is_dir():
        raise ValueError(f"{folder}: no such folder. Schemas are read from below it, as vendor/name/jsonschema/1-0-0")
    for root in (folder / "schemas", folder):
        if root not in _folders:
            _folders.append(root)


def _parts(uri: str) -> re.Match[str]:
    parts = _URI.fullmatch(uri)
    if not parts:
        raise ValueError(f"{uri[:300]!r} is not a schema URI; expected iglu:vendor/name/jsonschema/1-0-0")
    return parts


def _find(uri: str) -> tuple[dict[str, Any], str] | None:
    """A schema and its location; None if it is not known."""
    if uri in _registered:
        return _registered[uri], "registered"
    for folder in _folders:
        file = folder / uri.removeprefix("iglu:")
        try:
            return json.loads(file.read_text()), str(file)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except ValueError as error:
            raise InvalidSchema(f"{file} is not JSON: {error}. Correct the file") from error
    return None


@cache
def _validator(uri: str) -> Validator:
    try:
        _parts(uri)
    except ValueError as error:
        raise InvalidPayload(str(error)) from error
    found = _find(uri)
    if found is None:
        raise InvalidPayload(
            f"{uri} is not known: put the schema into a folder as {uri.removeprefix('iglu:')}, and name the folder in the"
            " configuration (manifest.schemas), or give it to manifest_platform.manifest.payloads.register"
        )
    return _compiled(uri, *found)


def _compiled(uri: str, schema: dict[str, Any], place: str) -> Validator:
    from jsonschema import Draft4Validator, SchemaError
    from jsonschema.validators import validator_for
    from referencing import Registry

    parts = _parts(uri).groupdict()
    if not isinstance(schema, dict):
        raise InvalidSchema(f"{place} is not a JSON Schema: it is not an object")
    named = schema.get("self", {})
    version = f"{parts['model']}-{parts['revision']}-{parts['addition']}"
    if named and (named.get("vendor"), named.get("name"), named.get("version")) != (parts["vendor"], parts["name"], version):
        raise InvalidSchema(f"{place} names itself {named}, but must be the schema of {uri}")
    kind = validator_for(schema, default=Draft4Validator)  # what Iglu's own meta-schema builds on
    try:
        kind.check_schema(schema)
    except SchemaError as error:
        raise InvalidSchema(f"{place} is not a JSON Schema: {error.json_path}: {error.message}. Correct the file") from error
    return kind(schema, format_checker=_formats(), registry=Registry())  # empty: nothing is fetched


@cache
def _formats() -> Any:
    """The formats that are checked, by the standard library alone, so that other installed packages make no difference."""
    from jsonschema import FormatChecker

    checker = FormatChecker(formats=())
    for name, parse in _FORMATS.items():
        checker.checks(name, raises=ValueError)(lambda value, parse=parse: not isinstance(value, str) or bool(parse(value)))
    return checker


def _uuid(text: str) -> bool:
    return str(UUID(text)) == text.lower()


def _time(text: str) -> bool:
    return "T" in text.upper() and datetime.fromisoformat(text).tzinfo is not None


_FORMATS: dict[str, Callable[[str], bool]] = {"uuid": _uuid, "date-time": _time}


def _rule(error: ValidationError) -> str:
    if error.validator in ("required", "additionalProperties"):  # the validator's message names the property
        return f"{error.validator}: {error.message}"
    shown = json.dumps(error.validator_value)
    return f"{error.validator} {shown if len(shown) <= SHOWN else f'{shown[:SHOWN]}…'}"
