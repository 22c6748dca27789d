"""The preview of enriched runs: a sample of them, shredded in memory."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import orjson
import pyarrow as pa

from manifest_platform.shred.lines import Piece
from manifest_platform.shred.rows import BAD
from manifest_platform.shred.sample import Sampler
from manifest_platform.sources.directories import LandedDirectory
from manifest_platform.sources.errors import LandingError
from manifest_platform.sources.preview import Bounds, MissingSchema, Sample, Sampling
from manifest_platform.sources.snowplow.events.shredder import ShreddedEvents, shred_lines, shred_piece
from manifest_platform.sources.snowplow.fields import FIELDS
from manifest_platform.sources.snowplow.rules import Rules
from manifest_platform.sources.snowplow.schemas.keys import SchemaKey, is_key
from manifest_platform.sources.snowplow.schemas.registry import RegistryRefused, RegistryUnavailable
from manifest_platform.sources.snowplow.schemas.resolver import Resolver
from manifest_platform.sources.snowplow.settings import RegistryLimits, SnowplowSettings, is_http

_CHUNK = 1 << 20
_JSON = frozenset(position for position, field in enumerate(FIELDS) if field.is_json)
_LIMITS = RegistryLimits(seconds=1, unknown_keys=100)
"""Limits of the calls to registries while a person waits."""


def sample(settings: SnowplowSettings, root: str, directories: Sequence[tuple[str, LandedDirectory]], bounds: Bounds) -> Sample:
    """Shreds the beginning of each run. For a line that only lacks schemas the event is kept and the line counts as waiting."""
    sampler = Sampler(time.monotonic() + bounds.seconds)
    sampling = Sampling(sampler, directories, bounds)
    kernel = _Kernel(bounds.schemas, settings.shred.tables, settings.shred.rules())
    limits = settings.shred.limits.of_input()
    for _, directory in sampling.each():
        try:
            directory.check()
            for file in directory.files:
                if sampler.is_hopeless:
                    break
                for size, shredded in shred_piece(Piece(file.uri, file.size, 0, file.size, root), kernel.shred, limits, _CHUNK):
                    for name, table in shredded.tables.items():
                        sampler.add(shredded.definitions[name], table)
                    sampler.chunk_done(size, shredded.good, BAD, shredded.bad)
                    sampler.give(kernel.lost())
                    if sampler.is_hopeless:
                        break
        except (ValueError, OSError, LandingError) as error:
            sampling.failed(directory, error)
    kernel.close()
    return sampling.sample(kernel.waiting, kernel.missing(), kernel.notes)


class _Kernel:
    """Shreds lines with the registries that answer.

    `waiting`: the number of lines so far that are bad only because schemas are missing. `notes`: faults of registries.
    """

    def __init__(self, schemas: Sequence[str], tables: dict[str, str], rules: Rules):
        self._schemas, self._tables, self._rules = tuple(schemas), tables, rules
        self._resolver = Resolver(self._schemas, _LIMITS, tables, rules)
        self._without = Resolver((), _LIMITS, tables)
        self._missing: Counter[str] = Counter()
        self._lost = 0.0
        self.waiting = 0
        self.notes: list[str] = []

    def close(self) -> None:
        """Closes the registries' connections."""
        self._resolver.close()

    def lost(self) -> float:
        """Returns the seconds that registries took to fail since the last call."""
        lost, self._lost = self._lost, 0.0
        return lost

    def missing(self) -> list[MissingSchema]:
        """Returns the schemas that no registry has, the ones named by the most lines first."""
        tables = ((key, SchemaKey.parse(key)) for key, _ in self._missing.most_common())
        return [
            MissingSchema(key, self._tables.get(parsed.family, parsed.table_name), self._missing[key]) for key, parsed in tables
        ]

    def shred(self, data: bytes, file: str, first_line: int) -> ShreddedEvents:
        """Shreds lines. Lines that only lack schemas become events without entities."""
        shredded = self._shred(data, file, first_line)
        if not shredded.bad.num_rows:
            return shredded
        waits = [self._waits(reasons) for reasons in shredded.bad["reasons"].to_pylist()]
        if not any(waits):
            return shredded
        raw = shredded.bad.filter(pa.array(waits))["raw"].to_pylist()
        bare = shred_lines(b"".join(_without_entities(line) for line in raw), self._without, file, rules=self._rules)
        self.waiting += len(raw)
        bad = shredded.bad.filter(pa.array([not one for one in waits]))
        tables, definitions = dict(shredded.tables), {**bare.definitions, **shredded.definitions}
        for name, rows in bare.tables.items():
            parts = [tables[name], rows] if name in tables else [rows]
            tables[name] = pa.concat_tables(parts, promote_options="permissive")
        return replace(shredded, tables=tables, definitions=definitions, bad=bad, good=shredded.good + len(raw))

    def _shred(self, data: bytes, file: str, first_line: int) -> ShreddedEvents:
        begun = time.monotonic()
        try:
            return shred_lines(data, self._resolver, file, first_line, rules=self._rules)
        except (RegistryUnavailable, RegistryRefused) as error:
            self._lost += time.monotonic() - begun
            self.notes.append(f"the preview continues without registries over HTTP and in S3, because one failed: {error}")
            self._resolver.close()
            self._schemas = tuple(one for one in self._schemas if not is_http(one) and not one.startswith("s3://"))
            self._resolver = Resolver(self._schemas, _LIMITS, self._tables, self._rules)
            return shred_lines(data, self._resolver, file, first_line, rules=self._rules)

    def _waits(self, reasons: str) -> bool:
        """True if a line lacks schemas and has no other fault. Counts its missing schemas in any case."""
        lacking = set()
        only = True
        for reason in orjson.loads(reasons):
            if reason["type"] == "unknown_schema" and is_key(reason["schema"]):
                lacking.add(reason["schema"])
            elif reason["type"] != "more":
                only = False
        self._missing.update(lacking)
        return only


def _without_entities(line: str) -> bytes:
    fields = line.split("\t")
    return "\t".join("" if place in _JSON else value for place, value in enumerate(fields)).encode() + b"\n"
