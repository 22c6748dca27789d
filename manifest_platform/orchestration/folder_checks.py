"""The check that what landed is loaded and is still there, with one summary for all directories, as `landing check` gives it.

It lists the names of the look-back and reads their items. So the sensor does not evaluate it at every look, but each time that
discovery has listed everything once, and every hour as long as it fails; then for a second at each look, until it is done.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import datetime, timedelta

import dagster as dg

from manifest_platform.operations.folders import Folders, compare, in_steps
from manifest_platform.orchestration.events import check_result
from manifest_platform.orchestration.feed_checks import evaluation
from manifest_platform.orchestration.keys import Names
from manifest_platform.orchestration.remedies import command_of
from manifest_platform.orchestration.wiring import Wiring
from manifest_platform.pipeline import Pipeline
from manifest_platform.sources.errors import LandingError

LOADED = "what_landed_is_loaded"
LOADED_WORDS = "Everything that has landed is loaded in time, and everything that was loaded is still there."
SHOWN = 10
"""The number of directories of each kind that the table shows."""
AGAIN = timedelta(hours=1)
"""The pause after which a check that failed is evaluated again."""
SECONDS = 1.0
"""The time that a look spends on an evaluation. A look of more than two seconds of processor time is followed by a pause."""


def build_folder_check(wiring: Wiring) -> dg.AssetChecksDefinition:
    """Returns the check of a dataset's landing root against its manifest."""

    @dg.asset_check(asset=wiring.names.landed(wiring.source.main), name=LOADED, description=LOADED_WORDS)
    def what_landed_is_loaded() -> dg.AssetCheckResult:
        with wiring.pipeline() as pipeline:
            return compared(pipeline)

    return what_landed_is_loaded


def compared(pipeline: Pipeline) -> dg.AssetCheckResult:
    """Evaluates the check at once."""
    try:
        return _result(pipeline, compare(pipeline))
    except LandingError as error:
        return _failed(error)


def _failed(error: LandingError) -> dg.AssetCheckResult:
    return check_result(passed=False, severity=dg.AssetCheckSeverity.WARN, description=str(error))


def _result(pipeline: Pipeline, found: Folders) -> dg.AssetCheckResult:
    """Returns the check's result. A directory that is gone before it was shredded is an error: no other copy is known."""
    commands = "\n".join(command_of(remedy, pipeline) for remedy in found.remedies)
    return check_result(
        passed=not found,
        severity=dg.AssetCheckSeverity.ERROR if found.lost else dg.AssetCheckSeverity.WARN,
        description=found.summary,
        metadata={
            "not_loaded": len(found.not_loaded),
            "lost": len(found.lost),
            "deleted": len(found.deleted),
            "incomplete": len(found.incomplete),
            "directories": found.directories,
            "requests": found.requests,
            "since": str(found.since or ""),
            "first": _table(found),
            "commands": commands,
        },
    )


def _table(found: Folders) -> dg.MetadataValue:
    """Returns the first directories of each kind. The schema is explicit, for a table without lines."""
    lines = [dg.TableRecord({"directory": name, "found": kind}) for kind, names in found.kinds for name in names[:SHOWN]]
    schema = dg.TableSchema([dg.TableColumn("directory", "string"), dg.TableColumn("found", "string")])
    return dg.MetadataValue.table(lines, schema)


class FolderNews:
    """The sensor's evaluations of the check. An evaluation continues from look to look, in the memory of a process."""

    def __init__(self) -> None:
        self._steps: Iterator[Folders | None] | None = None

    def look(
        self, pipeline: Pipeline, names: Names, told: str | None, now: datetime
    ) -> tuple[str | None, list[dg.AssetCheckEvaluation]]:
        """Continues the evaluation for a second if it is due.

        Returns the text to remember until the next look, and the evaluation once it is done. `told`: the text of the look
        before; None if there is none.
        """
        ended = [pipeline.manifest.full_listing(feed).done_at for feed in pipeline.feeds]
        listed = min((one for one in ended if one), default=None) if all(ended) else None
        if not is_due(told, listed, now) or (result := self._go_on(pipeline)) is None:
            return told, []
        text = json.dumps([str(listed), None if result.passed else now.isoformat()])
        return text, [evaluation(names.landed(pipeline.source.main), LOADED, result)]

    def forget(self) -> None:
        """Begins the evaluation again, because the manifest was replaced."""
        self._steps = None

    def _go_on(self, pipeline: Pipeline) -> dg.AssetCheckResult | None:
        """Compares some stretches; None if some are left."""
        until = time.monotonic() + SECONDS
        self._steps = self._steps or in_steps(pipeline)
        try:
            for found in self._steps:
                if found is not None:
                    self._steps = None
                    return _result(pipeline, found)
                if time.monotonic() >= until:
                    return None
        except LandingError as error:
            self._steps = None
            return _failed(error)
        return None


def is_due(told: str | None, listed: datetime | None, now: datetime) -> bool:
    """True if everything was listed in full again since the last evaluation, or if it failed an hour ago.

    `told`: that listing of the last evaluation, and when that failed. `listed`: when the last full listing of all feeds ended.
    """
    if listed is None or told is None:
        return listed is not None
    before, failed = json.loads(told)
    return before != str(listed) or (failed is not None and not timedelta(0) <= now - datetime.fromisoformat(failed) < AGAIN)
