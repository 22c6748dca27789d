"""`reshred`: shreds an item again, whatever its state.

Use it for lost or damaged output, and after a correction of the shredder, the schemas or the settings. Shredding the same input
again gives the same rows, so the rows of a loaded item stay as they are.
"""

from __future__ import annotations

from manifest_platform.manifest import Application, ItemKey, Record, Refused
from manifest_platform.pipeline import SHRED, Pipeline
from manifest_platform.pipeline.shredding import landing_problem
from manifest_platform.remedies import Action, Remedy


def reshred(pipeline: Pipeline, key: ItemKey, reason: str) -> Record:
    """Writes the New record that makes an item be shredded again, and frees its failures.

    Raises Refused while somebody works on it, if it was never shredded, or if its directory differs from the registered one.
    """
    if key.feed not in pipeline.feeds:
        raise Refused(
            f"{key.name} cannot be shredded again: it was registered by a program, and only programs process its feed"
        )
    item = pipeline.manifest.item(key)
    application = Application(SHRED)
    tried = any(record.application.key == application.key for record in item.records)
    if not item.processed_by(application) and not (tried and item.blocker()):
        if item.skipped_for(application):
            unskip = Remedy(Action.UNSKIP, item=key.name)
            raise Refused(f"{key.name} is skipped for {SHRED}: unskip it to have it shredded", unskip)
        raise Refused(f"{key.name} already waits to be shredded: let the next drain do it", Remedy(Action.DRAIN))
    if problem := landing_problem(pipeline, item):
        raise Refused(
            f"{key.name} cannot be shredded again: {problem}", problem.remedy or Remedy(Action.EXPLAIN, item=key.name)
        )
    return pipeline.manifest.reopen(key, [SHRED], reason, read=item)
