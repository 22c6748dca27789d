"""The names of schemas, and the names of tables and columns that are made of them."""

from __future__ import annotations

import re
from dataclasses import dataclass

_KEY = re.compile(
    r"iglu:(?P<vendor>[a-zA-Z0-9_-]+(?:\.[a-zA-Z0-9_-]+)*)/(?P<name>[a-zA-Z0-9_-]+)/(?P<format>[a-zA-Z0-9_-]+)"
    r"/(?P<model>[1-9][0-9]{0,8})-(?P<revision>0|[1-9][0-9]{0,8})-(?P<addition>0|[1-9][0-9]{0,8})"
)
_LONGEST_NAME = 128  # of a vendor or name: what the hierarchy columns hold


@dataclass(frozen=True, order=True)
class SchemaKey:
    """The name of a schema: `iglu:vendor/name/format/model-revision-addition`."""

    vendor: str
    name: str
    format: str
    model: int
    revision: int
    addition: int

    @classmethod
    def parse(cls, text: str) -> SchemaKey:
        """The key of its text. Raises ValueError where the text is none."""
        match = _KEY.fullmatch(text)
        if not match or len(match["vendor"]) > _LONGEST_NAME or len(match["name"]) > _LONGEST_NAME:
            raise ValueError(f"{text[:300]!r} is no schema key; expected iglu:vendor/name/jsonschema/1-0-0")
        numbers = (int(match[part]) for part in ("model", "revision", "addition"))
        return cls(match["vendor"], match["name"], match["format"], *numbers)

    @property
    def version(self) -> str:
        """`1-0-0`: model, revision and addition."""
        return f"{self.model}-{self.revision}-{self.addition}"

    @property
    def path(self) -> str:
        """Where a registry keeps the schema, below `schemas/`."""
        return f"{self.vendor}/{self.name}/{self.format}/{self.version}"

    @property
    def family(self) -> str:
        """The key without revision and addition: what shares one table."""
        return f"iglu:{self.vendor}/{self.name}/{self.format}/{self.model}"

    @property
    def table_name(self) -> str:
        """The name of the table of the key's model: `com_acme_link_click_1`."""
        return f"{snake_case(self.vendor)}_{snake_case(self.name)}_{self.model}"

    def __str__(self) -> str:
        return f"iglu:{self.path}"


def is_key(text: str) -> bool:
    """Whether a text is a schema key."""
    try:
        SchemaKey.parse(text)
    except ValueError:
        return False
    return True


def sibling(key: SchemaKey, version: str) -> SchemaKey | None:
    """The key of a version of the same model; None for a text that is none."""
    match = _KEY.fullmatch(f"iglu:{key.vendor}/{key.name}/{key.format}/{version}")
    if not match or int(match["model"]) != key.model:
        return None
    return SchemaKey(key.vendor, key.name, key.format, key.model, int(match["revision"]), int(match["addition"]))


def snake_case(name: str) -> str:
    """A property, schema or vendor name as a lower-case name with underscores: `PerformanceTiming`, `com.acme`."""
    spaced = re.sub(r"(?<=[A-Z\d])(?=[A-Z][a-z])", "_", name)
    spaced = re.sub(r"(?<=[a-z\d])(?=[A-Z])", "_", spaced)
    return re.sub(r"[^a-z0-9_]", "_", spaced.lower())
