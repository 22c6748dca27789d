"""Staging: COPY of exactly the listed objects into a transient table, whose name no other attempt has.

Snowflake remembers for 64 days which files a table has loaded, and loads none of them twice: a load that is repeated into the
same table reports success with no rows. Each attempt therefore has a table of its own, which has no such memory.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from os.path import commonpath

from manifest_platform.warehouse.engines.snowflake.names import literal, stored
from manifest_platform.warehouse.errors import CannotLoad

STAGING_SCHEMA = "manifest_platform_staging"
"""The schema of staging tables. It holds nothing else, so that its leftovers can be dropped."""
MOST_FILES = 1000
"""Largest number of objects that one COPY names."""
KEPT_SECONDS = 86_400
"""Age from which a staging table belongs to no load: its worker was killed."""

_NAME = re.compile(r"stage_(\d+)_[0-9a-f]{32}")


class OutsideStage(CannotLoad):
    """An object is not below the stage's URL: Snowflake would load nothing from there, without an error."""


@dataclass(frozen=True)
class Origin:
    """The place that COPY reads from. `url`: objects must be below it. `sql`: the text after FROM, without a folder."""

    url: str
    sql: str
    options: str = ""


def staging_name() -> str:
    """Returns the name of a new staging table: when it was made, and a name of its own."""
    return f"stage_{int(time.time())}_{uuid.uuid4().hex}"


def is_left_over(name: str, now: float) -> bool:
    """True if a table of the staging schema is so old that its worker was killed."""
    found = _NAME.fullmatch(name)
    return found is not None and now - int(found[1]) > KEPT_SECONDS


def of_stage(stage: Sequence[str], url: str) -> Origin:
    """Returns the origin of a named stage with this URL. `stage`: database, schema and name, as they are stored."""
    quoted = ".".join('"' + part.replace('"', '""') + '"' for part in stage)
    return Origin(url if url.endswith("/") else f"{url}/", f"@{quoted}")


def of_integration(integration: str, uris: Sequence[str]) -> Origin:
    """Returns the origin for a storage integration: the bucket of the objects, which the integration must allow."""
    bucket = "/".join(uris[0].split("/")[:3]) + "/"
    return Origin(bucket, literal(bucket), f" STORAGE_INTEGRATION = {stored(integration)}")


def copies(origin: Origin, table: str, name: str, uris: Sequence[str], file: str | None = None) -> Iterator[str]:
    """Yields the COPY statements that load exactly these objects into a table. Raises OutsideStage.

    `table`: the staging table's quoted name. `name`: the name of the loaded table, for messages. `file`: the quoted name of a
    column for the name of each row's object. More than 1,000 objects need several statements. A prefix would need one, but
    could hold objects that the listing does not name.
    """
    with_file = f" INCLUDE_METADATA = ({file} = METADATA$FILENAME)" if file else ""
    outside = next((uri for uri in uris if not uri.startswith(origin.url)), None)
    if outside is not None:
        raise OutsideStage(
            f"table {name}: {outside} is not below {origin.url}, the URL of the stage, so Snowflake would load nothing from "
            "there. Nothing was loaded. Set warehouse.stage to a stage over the shredded objects, then resolve the item"
        )
    files = [uri.removeprefix(origin.url) for uri in uris]
    for start in range(0, len(files), MOST_FILES):
        named = ", ".join(map(literal, files[start : start + MOST_FILES]))
        yield (
            f"COPY INTO {table} FROM {origin.sql}{origin.options} FILES = ({named}) "
            "FILE_FORMAT = (TYPE = PARQUET USE_LOGICAL_TYPE = TRUE) MATCH_BY_COLUMN_NAME = CASE_INSENSITIVE "
            f"ON_ERROR = ABORT_STATEMENT{with_file}"
        )


def folders(origin: Origin, uris: Mapping[int, Sequence[str]]) -> dict[int, str] | None:
    """Returns the folder of each item's objects, below the origin; None if a name cannot tell whose object it is."""
    found = {
        nth: commonpath([uri.removeprefix(origin.url).rpartition("/")[0] for uri in some]) + "/" for nth, some in uris.items()
    }
    several = any(one in other for nth, one in found.items() for of, other in found.items() if nth != of)
    return None if several or "/" in found.values() else found
