"""The seal of a transformed run, `shredding_complete.json`: what the run contains, in the schema that Snowplow published.

The transformer writes it last, into the folder of the run. This platform writes one beside what it shredded, for monitors and
scripts that read it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from manifest_platform import storage
from manifest_platform.shred.batch import Unusable
from manifest_platform.sources.snowplow.recognition import SEAL
from manifest_platform.sources.snowplow.schemas.keys import SchemaKey

SCHEMA = "iglu:com.snowplowanalytics.snowplow.storage.rdbloader/shredding_complete/jsonschema/2-0-1"
"""The key that Snowplow's own code writes. The registry publishes the schema under the vendor `…snowplow.storage`."""

_KEY = re.compile(r"iglu:com\.snowplowanalytics\.snowplow\.storage(\.rdbloader)?/shredding_complete/jsonschema/([12])-\d+-\d+")
_LARGEST = 16 << 20  # bytes
_LONGEST_QUOTE = 200

Entity = Literal["CONTEXT", "SELF_DESCRIBING_EVENT"]


@dataclass(frozen=True)
class SealedType:
    """A schema of the run.

    `format`: TSV or JSON, that of its files; None in wide rows. `entity`: None in seals of versions 1-0-*.
    """

    key: SchemaKey
    format: str | None
    entity: Entity | None


@dataclass(frozen=True)
class Seal:
    """The content of a seal.

    `base`: the URI of the run. `transformation`: SHREDDED (a folder a type) or WIDEROW (a row an event). `file_format`: of wide
    rows, JSON or PARQUET. `good`, `bad`: numbers of events; None if the transformer could not count them. Times are ISO 8601
    texts; `first`, `last`: those of the collector.
    """

    base: str
    transformation: Literal["SHREDDED", "WIDEROW"]
    types: tuple[SealedType, ...]
    started: str
    completed: str
    first: str | None
    last: str | None
    processor: tuple[str, str]
    file_format: str | None = None
    compression: str = "NONE"
    good: int | None = None
    bad: int | None = None

    @property
    def models(self) -> Mapping[str, list[SchemaKey]]:
        """The schemas by family: vendor, name, format and model."""
        found: dict[str, list[SchemaKey]] = {}
        for type_ in self.types:
            found.setdefault(type_.key.family, []).append(type_.key)
        return {family: sorted(keys) for family, keys in found.items()}

    @classmethod
    def read(cls, directory: str) -> Seal:
        """Reads the seal of a run. Raises Unusable if it is gone or is not what was published, and OSError."""
        uri = f"{directory}/{SEAL}"
        try:
            data = storage.read_bytes(uri, _LARGEST + 1)
        except FileNotFoundError as error:
            raise Unusable(f"{uri} is gone, so nobody knows what the run contains; put it back, and accept the run") from error
        try:
            if len(data) > _LARGEST:
                raise ValueError(f"it has more than {_LARGEST:,} bytes")
            return cls.parse(orjson.loads(data))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            why = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
            raise Unusable(
                f"{uri} is not a seal as Snowplow's transformer writes it: {why[:_LONGEST_QUOTE]}; run the transformer again"
            ) from error

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Seal:
        """Parses a self-describing seal of versions 1-0-* and 2-0-*.

        Raises ValueError, KeyError, TypeError or AttributeError.
        """
        schema = _KEY.fullmatch(document["schema"])
        if not schema:
            raise ValueError(f"its schema is {document['schema']!r}")
        data = document["data"]
        info: Mapping[str, Any] = (
            data["typesInfo"] if schema[2] == "2" else {"transformation": "SHREDDED", "types": data["types"]}
        )
        if info["transformation"] not in ("SHREDDED", "WIDEROW"):
            raise ValueError(f"its transformation is {info['transformation']!r}")
        times, processor, count = data["timestamps"], data["processor"], data.get("count") or {}
        return cls(
            base=data["base"],
            transformation=info["transformation"],
            types=tuple(
                SealedType(SchemaKey.parse(one["schemaKey"]), one.get("format"), one.get("snowplowEntity"))
                for one in info["types"]
            ),
            started=times["jobStarted"],
            completed=times["jobCompleted"],
            first=times["min"],
            last=times["max"],
            processor=(processor["artifact"], processor["version"]),
            file_format=info.get("fileFormat"),
            compression=data["compression"],
            good=_count(count, "good"),
            bad=_count(count, "bad"),
        )

    def document(self) -> dict[str, Any]:
        """Returns the self-describing JSON in the published schema 2-0-1."""
        wide = self.transformation == "WIDEROW"
        types = [
            {
                "schemaKey": str(type_.key),
                **({} if wide else {"format": type_.format}),
                "snowplowEntity": type_.entity or "CONTEXT",
            }
            for type_ in self.types
        ]
        data: dict[str, Any] = {
            "base": self.base,
            "typesInfo": {
                "transformation": self.transformation,
                **({"fileFormat": self.file_format} if wide else {}),
                "types": types,
            },
            "timestamps": {
                "jobStarted": self.started,
                "jobCompleted": self.completed,
                "min": self.first,
                "max": self.last,
            },
            "compression": self.compression,
            "processor": {"artifact": self.processor[0], "version": self.processor[1]},
            "count": None if self.good is None else {"good": self.good, "bad": self.bad or 0},
        }
        return {"schema": SCHEMA, "data": data}


def _count(count: Mapping[str, Any], name: str) -> int | None:
    value = count.get(name)
    if value is not None and (type(value) is not int or value < 0):
        raise ValueError(f"its count of {name} events is {value!r}")
    return value
