"""Migration from Snowplow's two manifests, and the view of a feed in the layout of one of them.

`snowplow_manifest` and `snowflake_loader` turn rows of the two tables into histories of items (pure), `dynamodb` reads the
tables, `importing` appends the missing records to our manifest, and `view` shows a feed as the Snowflake Loader's table would.
"""

from manifest_platform.operations.migration.dynamodb import ForeignTable, SourceError
from manifest_platform.operations.migration.histories import Elsewhere, Histories, Note, Place
from manifest_platform.operations.migration.importing import Dropped, Report, WorkedOn, drop_import, import_items
from manifest_platform.operations.migration.snowflake_loader import Run, read_snowflake
from manifest_platform.operations.migration.snowplow_manifest import Applications, SeveralTargets, read_snowplow
from manifest_platform.operations.migration.view import view_as_loader

__all__ = [
    "Applications",
    "Dropped",
    "Elsewhere",
    "ForeignTable",
    "Histories",
    "Note",
    "Place",
    "Report",
    "Run",
    "SeveralTargets",
    "SourceError",
    "WorkedOn",
    "drop_import",
    "import_items",
    "read_snowflake",
    "read_snowplow",
    "view_as_loader",
]
