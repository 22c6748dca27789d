"""`reshred`: an item is shredded once more, whatever became of it before.

For output that is lost or damaged, and for a shredder, schemas or settings that were mended since. What shredding makes is the
same for the same input, so the rows of an item that is loaded stay as they are.
"""

from __future__ import annotations

from manifest_platform.manifest import Application, ItemKey, Record, Refused
from manifest_platform.pipeline import SHRED, Pipeline
from manifest_platform.pipeline.shredding import landing_problem
from manifest_platform.remedies import Action, Remedy


def reshred(pipeline: Pipeline, key: ItemKey, reason: str) -> Record:
    """Has an item shredded again, and frees what failed of it: a New record, and an attempt like any other.

    Raises Refused while somebody works on it, where it was never shredded, and where its directory is not what was registered.
    """
    if key.feed not in pipeline.feeds:
        raise Refused(f"nothing shreds {key.name}: a program registered it, and programs work on it")
    item = pipeline.manifest.item(key)
    application = Application(SHRED)
    tried = any(record.application.key == application.key for record in item.records)
    if not item.processed_by(application) and not (tried and item.blocker()):
        raise Refused(f"{key.name} waits to be shredded: there is nothing to do again", Remedy(Action.DRAIN))
    if problem := landing_problem(pipeline, item):
        raise Refused(
            f"{key.name} cannot be shredded again: {problem}", problem.remedy or Remedy(Action.EXPLAIN, item=key.name)
        )
    return pipeline.manifest.reopen(key, [SHRED], reason)
