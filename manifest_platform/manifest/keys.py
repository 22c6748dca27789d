"""The layout of a dataset's partition: the sort key of every row that the manifest keeps, made and read.

Belongs here: keys alone. Which rows there are, and when, is said by `transitions`. Merging lays out its own rows.
"""

from __future__ import annotations

from urllib.parse import quote, unquote

from manifest_platform.manifest.item import ItemKey
from manifest_platform.manifest.records import Application


def state_key(application: Application) -> str:
    """Sort key of a step's state."""
    return f"{STATES}{application.key}"


ID = "ID"
"""Sort key of the row that tells a dataset's manifest from every other, and of which form its rows are."""
UNNAMED = "UNNAMED#"
"""What the sort keys of the notes start with on objects outside the store that no row names any more."""
STATES = "STATE#"
LEASES = "LEASE#"


def lease_key(application: Application, feed: str) -> str:
    """Sort key of a lease."""
    return f"{LEASES}{application.key}#{feed}"


def lease_of(sort: str) -> tuple[Application, str]:
    """The application and feed, or other place, in a key that `lease_key` made."""
    application, _, place = sort.removeprefix(LEASES).partition("#")
    return Application.parse(application), place


def look_prefix(feed: str) -> str:
    """What the sort keys of a feed's notes on directories start with."""
    return f"LOOK#{feed}#"


def look_key(feed: str, name: str) -> str:
    """Sort key of the note on a directory that is not complete yet, whatever characters its name has."""
    return f"{look_prefix(feed)}{quote(name, safe='/=:@+,~')}"


def looked_at(sort: str, feed: str) -> str:
    """The name of the directory in a key that `look_key` made."""
    return unquote(sort.removeprefix(look_prefix(feed)))


def old_looks_key(feed: str) -> str:
    """Sort key of the one row that held all of a feed's notes, until a store's largest row was too small for them."""
    return f"LOOKS#{feed}"


def listed_key(feed: str) -> str:
    """Sort key of how far the full listing of a feed's directories has come."""
    return f"LISTED#{feed}"


def item_key(feed: str, id_: str) -> str:
    """Sort key of the row that says where in its feed's order an item stands that a program registered, by its id."""
    return f"ITEM#{feed}#{id_}"


SKIP_RULES = "SKIPRULES"
"""Sort key of the rules by which items are skipped as they are registered."""
SKIP_RULE_CHANGES = "SKIPRULE#"
"""What the sort keys of the rows start with that say how those rules came to be: a change each."""


def skip_rule_change_key(number: int) -> str:
    """Sort key of the row that says what the so-manieth change of the skip rules was."""
    return f"{SKIP_RULE_CHANGES}{number:06d}"


FAMILIES = "FAMILY#"
"""What the sort keys of the rows start with that say whose rows a table has."""


def family_key(table: str) -> str:
    """Sort key of the row that says whose rows a table has, by the table's name in lower case."""
    return f"{FAMILIES}{quote(table.lower(), safe='')}"


COMMITS = "COMMIT#"


def commit_key(number: int) -> str:
    """Sort key of the row that gives the completion of a numbered step its number."""
    return f"{COMMITS}{number:013d}"


MERGED = "MCURSOR"
"""Sort key of merging's own row that says up to which commit it has registered what was shredded."""


def commit_number(sort: str) -> int:
    """The number in a key that `commit_key` made."""
    return int(sort.removeprefix(COMMITS))


def records_prefix(feed: str, position: str = "") -> str:
    """What the sort keys of a feed's records, or of one item's, start with."""
    return f"RECORD#{feed}#{position}#" if position else f"RECORD#{feed}#"


def record_key(key: ItemKey, sequence: int) -> str:
    """Sort key of a record."""
    return f"{records_prefix(key.feed, key.position)}{sequence:06d}"


PENDING = "PENDING#"


def pending_prefix(application: Application, feed: str) -> str:
    """What the sort keys of a step's waiting items start with."""
    return f"{PENDING}{application.key}#{feed}#"


def pending_key(application: Application, key: ItemKey) -> str:
    """Sort key of the row that exists exactly while an unordered step may work on an item, or it is late for an ordered one."""
    return pending_prefix(application, key.feed) + key.position


def attention_prefix(application: Application, feed: str) -> str:
    """What the sort keys of the rows start with that exist exactly while an item needs a person or a retry for a step."""
    return f"ATTENTION#{application.key}#{feed}#"


def position_beside(sort: str, prefix: str) -> str:
    """The position of the item that a row beside the log is of, by its sort key and what such keys start with."""
    return "#".join(sort.removeprefix(prefix).split("#", 2)[:2])
