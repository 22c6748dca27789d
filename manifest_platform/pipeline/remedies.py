"""What helps a blocked feed, as an operator types it: the one place that puts the manifest's remedies into commands."""

from __future__ import annotations

from manifest_platform.manifest import Blocked, Remedy

_COMMANDS = {
    Remedy.RESOLVE: "resolve {item}",
    Remedy.UNSKIP: "unskip {item}",
    Remedy.CAPTURE: "capture",
    Remedy.BEGIN_FULL_LOAD: "full begin latest",
    Remedy.DRAIN: "drain",
    Remedy.READ_RECORDS: "history {item}",
    Remedy.EXPLAIN: "explain {item}",
}


def remedy_command(verdict: Blocked) -> str:
    """The command that helps where a feed is blocked, without the options that say of which dataset."""
    return f"manifest-platform {_COMMANDS[verdict.remedy].format(item=verdict.item.key.name)}"
