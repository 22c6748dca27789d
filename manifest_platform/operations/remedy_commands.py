"""The command of each action of a person: the same in a terminal and on Dagster's pages.

Not here: the program's name and the options, which depend on where the command is told.
"""

from manifest_platform.remedies import Action

COMMANDS = {
    Action.RESOLVE: "resolve {0.item}",
    Action.RESHRED: "reshred {0.item}",
    Action.ACCEPT: "accept {0.item} --reason TEXT",
    Action.KEEP: "accept {0.item} --keep --reason TEXT",
    Action.SKIP: "skip {0.item} --reason TEXT",
    Action.UNSKIP: "unskip {0.item}",
    Action.READ_RECORDS: "history {0.item}",
    Action.RELOAD_MISSING: "reload {0.item} --missing-rows",
    Action.EXPLAIN: "explain {0.item}",
    Action.DISCOVER: "discover",
    Action.DISCOVER_ALL: "discover --all",
    Action.CAPTURE: "capture",
    Action.CAPTURE_SNAPSHOT: "capture --feed {0.feed}",
    Action.BEGIN_FULL_LOAD: "full begin latest",
    Action.LOAD_SNAPSHOT: "full begin {0.item}",
    Action.ALLOW_EMPTY: "full begin {0.item} --allow-empty",
    Action.ALLOW_SHRINK: "full begin {0.item} --allow-shrink",
    Action.CANCEL_FULL_LOAD: "full cancel",
    Action.DRAIN: "drain",
    Action.RUN_PROGRAM: "run --application {0.step} -- COMMAND",
    Action.SHOW_STATUS: "status",
    Action.SHOW_NEXT: "next",
    Action.EXAMINE: "doctor",
    Action.REPAIR: "doctor --repair",
    Action.CLEAN: "doctor --clean",
    Action.COLLECT: "gc",
    Action.CREATE_STORE: "store create",
    Action.RECONCILE: "warehouse reconcile",
    Action.RECONCILE_IN_FULL: "warehouse reconcile --full",
    Action.ACCEPT_WAREHOUSE: "warehouse accept --reason TEXT",
    Action.IMPORT: "import-snowplow {0.source}",
    Action.IMPORT_LOADER: "import-snowflake {0.source}",
    Action.IMPORT_MOVED: "import-moved {0.source} {0.item}",
    Action.MERGE: "merge run",
    Action.MERGE_PARTITION: "merge run --table {0.table} --date {0.day}",
    Action.REBUILD: "merge rebuild {0.table} {0.day}",
    Action.RETRY_MERGE: "merge retry {0.table} {0.day}",
    Action.SHOW_MERGING: "merge status",
    Action.PUBLISH: "merge publish",
    Action.VERIFY_PUBLISHED: "merge publish --verify",
}
"""The words behind the program's name, with the parts of a remedy in braces."""
