"""The layout of a dataset's partition: functions that make and parse the sort key of every row of the manifest.

Belongs here: keys only. `transitions` decides which rows exist, and when. The keys of merging's rows are in `merging`.
"""

from __future__ import annotations

from urllib.parse import quote, unquote

from manifest_platform.manifest.item import ItemKey
from manifest_platform.manifest.records import Application


def state_key(application: Application) -> str:
    """Sort key of a step's state."""
    return f"{STATES}{application.key}"


ID = "ID"
"""Sort key of the row that identifies a dataset's manifest and holds the version of its rows."""
UNNAMED = "UNNAMED#"
"""Prefix of the sort keys of notes on objects outside the store that no row names any more."""
STATES = "STATE#"
LEASES = "LEASE#"


def lease_key(application: Application, feed: str) -> str:
    """Sort key of a lease."""
    return f"{LEASES}{application.key}#{feed}"


def lease_of(sort: str) -> tuple[Application, str]:
    """The application and the feed (or other place) in a key that `lease_key` made."""
    application, _, place = sort.removeprefix(LEASES).partition("#")
    return Application.parse(application), place


def look_prefix(feed: str) -> str:
    """Prefix of the sort keys of a feed's notes on directories."""
    return f"LOOK#{feed}#"


def look_key(feed: str, name: str) -> str:
    """Sort key of the note on a directory that is not complete yet, whatever characters its name has."""
    return f"{look_prefix(feed)}{quote(name, safe='/=:@+,~')}"


def looked_at(sort: str, feed: str) -> str:
    """The name of the directory in a key that `look_key` made."""
    return unquote(sort.removeprefix(look_prefix(feed)))


def old_looks_key(feed: str) -> str:
    """Sort key of the row in which an older release kept a feed's notes. Together they could exceed a store's largest row."""
    return f"LOOKS#{feed}"


def listed_key(feed: str) -> str:
    """Sort key of the row with the progress of the full listing of a feed's directories."""
    return f"LISTED#{feed}"


def item_key(feed: str, id_: str) -> str:
    """Sort key of the row that gives, by its id, the sort key of an item that a program registered."""
    return f"ITEM#{feed}#{id_}"


SKIP_RULES = "SKIPRULES"
"""Sort key of the row with the skip rules in force."""
SKIP_RULE_CHANGES = "SKIPRULE#"
"""Prefix of the sort keys of the skip rules' changes, a row for each change."""


def skip_rule_change_key(number: int) -> str:
    """Sort key of the row with a change of the skip rules, by its number."""
    return f"{SKIP_RULE_CHANGES}{number:06d}"


FAMILIES = "FAMILY#"
"""Prefix of the sort keys of the rows that record the family of schemas whose rows a table holds."""


def family_key(table: str) -> str:
    """Sort key of the row that records the family of schemas whose rows a table holds, by the table's name in lower case."""
    return f"{FAMILIES}{quote(table.lower(), safe='')}"


DELETIONS = "DELETING#"
"""Prefix of the sort keys of the rows that exist while retention deletes data of an item."""


def deletion_key(key: ItemKey) -> str:
    """Sort key of the row that exists while retention deletes data of an item."""
    return f"{DELETIONS}{key.feed}#{key.position}"


def deletion_of(sort: str) -> ItemKey:
    """The item in a key that `deletion_key` made."""
    feed, _, position = sort.removeprefix(DELETIONS).partition("#")
    return ItemKey.at(feed, position)


COMMITS = "COMMIT#"


def commit_key(number: int) -> str:
    """Sort key of the row that numbers the completion of a numbered step."""
    return f"{COMMITS}{number:013d}"


MERGED = "MCURSOR"
"""Sort key of merging's row that holds the number of the last commit whose output it has registered."""


def commit_number(sort: str) -> int:
    """The number in a key that `commit_key` made."""
    return int(sort.removeprefix(COMMITS))


def records_prefix(feed: str, position: str = "") -> str:
    """Prefix of the sort keys of a feed's records, or of one item's."""
    return f"RECORD#{feed}#{position}#" if position else f"RECORD#{feed}#"


def record_key(key: ItemKey, sequence: int) -> str:
    """Sort key of a record."""
    return f"{records_prefix(key.feed, key.position)}{sequence:06d}"


PENDING = "PENDING#"


def pending_prefix(application: Application, feed: str) -> str:
    """Prefix of the sort keys of a step's waiting items."""
    return f"{PENDING}{application.key}#{feed}#"


def pending_key(application: Application, key: ItemKey) -> str:
    """Sort key of an item's waiting row.

    The row exists while an unordered step may work on the item, or while the item is late and not set aside.
    """
    return pending_prefix(application, key.feed) + key.position


def attention_prefix(application: Application, feed: str) -> str:
    """Prefix of the sort keys of the rows that exist while an item needs a person or a retry for a step."""
    return f"ATTENTION#{application.key}#{feed}#"


def position_beside(sort: str, prefix: str) -> str:
    """The position of the item in the sort key of a row beside the log, given the prefix of such keys."""
    return "#".join(sort.removeprefix(prefix).split("#", 2)[:2])
