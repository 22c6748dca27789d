"""What helps a blocked feed, as an operator types it: the one place that puts the manifest's remedies into commands."""

from __future__ import annotations

from manifest_platform.manifest import Blocked, Remedy

_COMMANDS = {
    Remedy.RESOLVE: "resolve {item}",
    Remedy.UNSKIP: "unskip {item}",
    Remedy.CAPTURE: "capture",
    Remedy.CAPTURE_SNAPSHOT: "capture --feed {feed}",
    Remedy.BEGIN_FULL_LOAD: "full begin latest",
    Remedy.DRAIN: "drain",
    Remedy.READ_RECORDS: "history {item}",
    Remedy.EXPLAIN: "explain {item}",
}


def remedy_command(verdict: Blocked) -> str:
    """The command that helps where a feed is blocked, without the options that say of which dataset."""
    return command_of(verdict.remedy, item=verdict.item.key.name)


def command_of(remedy: Remedy, **names: str) -> str:
    """The command that a remedy is, with the names that it needs: of the `item`, or of the `feed` of snapshots."""
    return f"manifest-platform {_COMMANDS[remedy].format(**names)}"
