"""The overview of a dataset: an asset with a few lines on how far it is loaded and what a person has to do.

Sensors and drains materialize it when its text changes. The text therefore contains no ages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import dagster as dg

from manifest_platform.manifest import Blocked
from manifest_platform.manifest.dataset import position_name
from manifest_platform.orchestration.blocks import Block
from manifest_platform.orchestration.events import materialization
from manifest_platform.orchestration.keys import Names
from manifest_platform.orchestration.remedies import command_of, pressed
from manifest_platform.orchestration.translator import AssetKind, completed
from manifest_platform.orchestration.wiring import Wiring
from manifest_platform.outward import line
from manifest_platform.pipeline import Pipeline
from manifest_platform.pipeline.blackout import blackout_reason
from manifest_platform.pipeline.chain import Broken, broken
from manifest_platform.pipeline.merge import Merging
from manifest_platform.remedies import Remedy

TEXT = "overview"
IN_DAGSTER, IN_A_TERMINAL = "in Dagster", "in a terminal"
_MARKUP = re.compile(r"([\\`*_\[\]<>|#!])")


def overview_spec(wiring: Wiring) -> dg.AssetSpec:
    """Returns the asset of a dataset's overview. Sensors and drains materialize it."""
    names = wiring.names
    loads = [names.at(target).warehouse(feed) for feed in names.feeds for target in names.targets]
    return completed(names.spec(AssetKind.OVERVIEW), loads)


@dataclass(frozen=True)
class _Stuck:
    """The block of a feed: the reason, its start, and the remedy in Dagster (`press`) and in a terminal (`command`)."""

    reason: str
    since: str
    press: str
    command: str


def overview_news(pipeline: Pipeline, names: Names, instance: dg.DagsterInstance) -> Iterator[dg.AssetMaterialization]:
    """Yields the current overview, unless Dagster already shows the same."""
    made = _made(pipeline, names)
    last = instance.get_latest_materialization_event(names.overview)
    shown = last.asset_materialization.metadata.get(TEXT) if last and last.asset_materialization else None
    if shown is None or shown.value != made.metadata[TEXT].value:
        yield made


def _made(pipeline: Pipeline, names: Names) -> dg.AssetMaterialization:
    merged = _merged(pipeline)
    targets, feeds = len(pipeline.targets) > 1, len(pipeline.feeds) > 1
    table = ["| feed | loaded up to | directories | blocked |", "|---|---|---|---|"]
    if targets:
        table = ["| feed | target | loaded up to | directories | blocked |", "|---|---|---|---|---|"]
    shown: dict[str, str] = {}
    todo: list[str] = []
    for feed, one, refused in _loads(pipeline):
        upto, count = _loaded(one, feed)
        found = _stuck(one, names, feed, refused)
        of = ", ".join([*([feed] if feeds else []), *([one.target] if targets else [])])
        at = f": {of}" if of else ""
        cells = [feed, *([one.target] if targets else []), _cell(upto), count, f"since {found.since}" if found else "no"]
        table.append(f"| {' | '.join(cells)} |")
        shown[f"loaded up to{at}"] = upto
        shown[f"stuck{at}"] = found.reason if found else "no"
        if found:
            shown[f"stuck since{at}"] = found.since
            todo += ["", f"**{of or feed} is blocked since {found.since}.** {_cell(found.reason)}", ""]
            for label, what in ((IN_DAGSTER, found.press), (IN_A_TERMINAL, found.command)):
                if what:
                    shown[f"{label}{at}"] = what
                    todo.append(f"- {label}: {_code(what) if label == IN_A_TERMINAL else _cell(what)}")
    if why := blackout_reason(pipeline):
        shown["blackout"] = why
        todo += ["", f"**{_cell(why)}.**"]
    if merged:
        shown["merged up to"] = merged
    text = [f"## {pipeline.name}", "", *table, *(["", f"Merged up to: {merged}."] if merged else [])]
    text += todo or ["", "No action is needed."]
    return materialization(names.overview, metadata={**shown, TEXT: dg.MetadataValue.md("\n".join(text))})


def _loads(pipeline: Pipeline) -> Iterator[tuple[str, Pipeline, Broken | None]]:
    """Yields each feed with the pipeline of each target, and the reason why that target is not as the manifest believes."""
    refused = {(one.target, found.feed): found for one in pipeline.each_target() for found in broken(one)}
    return ((feed, one, refused.get((one.target, feed))) for feed in pipeline.feeds for one in pipeline.each_target())


def _stuck(pipeline: Pipeline, names: Names, feed: str, refused: Broken | None) -> _Stuck | None:
    verdict = pipeline.manifest.next(feed, pipeline.load.key)
    if Block.of(pipeline, feed, verdict, refused) is None:
        return None
    if refused:
        return _Stuck(refused.reason, "an unknown time", *_help(refused.remedy, pipeline, names))
    assert isinstance(verdict, Blocked)
    reason = f"{verdict.item.key.name}: {verdict.reason}"
    return _Stuck(reason, f"{verdict.since:%Y-%m-%d %H:%M:%S} UTC", *_help(verdict.remedy, pipeline, names))


def _help(remedy: Remedy, pipeline: Pipeline, names: Names) -> tuple[str, str]:
    return pressed(remedy, pipeline, names), command_of(remedy, pipeline)


def _loaded(pipeline: Pipeline, feed: str) -> tuple[str, str]:
    """Returns the last loaded position of a feed, and the number of loaded directories."""
    state = pipeline.manifest.state(pipeline.load)
    standing = state.feed(feed)
    if pipeline.manifest.step(feed, pipeline.load.key).order == "full":
        return state.boundary or "nothing yet", "-"
    return position_name(feed, standing.watermark) or "nothing yet", f"{standing.applied:,}"


def _merged(pipeline: Pipeline) -> str:
    """Returns the last day up to which all merged tables are finished; empty if nothing is merged."""
    if pipeline.dataset.merge is None:
        return ""
    inventory = Merging(pipeline).inventory
    unfinished = min((found.date for found in inventory.open_partitions()), default=None)
    done = [
        found.date
        for found in inventory.partitions(pipeline.source.main_table)
        if unfinished is None or found.date < unfinished
    ]
    return f"{max(done)}" if done else "nothing yet"


def _cell(text: str) -> str:
    """Escapes foreign text for a line of Markdown, so that the name of a directory makes no link or heading."""
    return _MARKUP.sub(r"\\\1", line(text))


def _code(text: str) -> str:
    """Returns text as Markdown code."""
    return f"`{line(text).replace('`', chr(39))}`"
