"""Names of schemas, and the table and column names derived from them."""

from __future__ import annotations

import re
from dataclasses import dataclass

_KEY = re.compile(
    r"iglu:(?P<vendor>[a-zA-Z0-9_-]+(?:\.[a-zA-Z0-9_-]+)*)/(?P<name>[a-zA-Z0-9_-]+)/(?P<format>[a-zA-Z0-9_-]+)"
    r"/(?P<model>[1-9][0-9]{0,8})-(?P<revision>0|[1-9][0-9]{0,8})-(?P<addition>0|[1-9][0-9]{0,8})"
)
_LONGEST_NAME = 128  # characters of a vendor or name: the length of the hierarchy columns


@dataclass(frozen=True, order=True)
class SchemaKey:
    """The key of a schema: `iglu:vendor/name/format/model-revision-addition`."""

    vendor: str
    name: str
    format: str
    model: int
    revision: int
    addition: int

    @classmethod
    def parse(cls, text: str) -> SchemaKey:
        """Parses the text of a key. Raises ValueError if it is not a key."""
        match = _KEY.fullmatch(text)
        if not match or len(match["vendor"]) > _LONGEST_NAME or len(match["name"]) > _LONGEST_NAME:
            raise ValueError(f"{text[:300]!r} is no schema key; expected iglu:vendor/name/jsonschema/1-0-0")
        numbers = (int(match[part]) for part in ("model", "revision", "addition"))
        return cls(match["vendor"], match["name"], match["format"], *numbers)

    @property
    def version(self) -> str:
        """Model, revision and addition, as `1-0-0`."""
        return f"{self.model}-{self.revision}-{self.addition}"

    @property
    def path(self) -> str:
        """The path of the schema in a registry, below `schemas/`."""
        return f"{self.vendor}/{self.name}/{self.format}/{self.version}"

    @property
    def family(self) -> str:
        """The key without revision and addition. All schemas of a family share a table."""
        return f"iglu:{self.vendor}/{self.name}/{self.format}/{self.model}"

    @property
    def table_name(self) -> str:
        """The table name of the key's model, as `com_acme_link_click_1`."""
        return f"{snake_case(self.vendor)}_{snake_case(self.name)}_{self.model}"

    def __str__(self) -> str:
        return f"iglu:{self.path}"


def is_key(text: str) -> bool:
    """True if a text is a schema key."""
    try:
        SchemaKey.parse(text)
    except ValueError:
        return False
    return True


def sibling(key: SchemaKey, version: str) -> SchemaKey | None:
    """Returns the key of another version of the same model; None if `version` is not a version of this model."""
    match = _KEY.fullmatch(f"iglu:{key.vendor}/{key.name}/{key.format}/{version}")
    if not match or int(match["model"]) != key.model:
        return None
    return SchemaKey(key.vendor, key.name, key.format, key.model, int(match["revision"]), int(match["addition"]))


def snake_case(name: str) -> str:
    """Returns a property, schema or vendor name in lower case with underscores: `performance_timing`, `com_acme`."""
    spaced = re.sub(r"(?<=[A-Z\d])(?=[A-Z][a-z])", "_", name)
    spaced = re.sub(r"(?<=[a-z\d])(?=[A-Z])", "_", spaced)
    return re.sub(r"[^a-z0-9_]", "_", spaced.lower())
