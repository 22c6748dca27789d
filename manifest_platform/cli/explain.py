"""`explain`: the next step of an item, and what prevents it."""

from __future__ import annotations

from typing import Any

import typer

from manifest_platform.cli.app import Command, ItemName, WrongUse, app, as_json, examples
from manifest_platform.cli.context import Target, item_key, open_pipeline
from manifest_platform.cli.exits import Exit
from manifest_platform.cli.output import print_json, say, wrapped
from manifest_platform.cli.remedies import typed
from manifest_platform.manifest import UnknownItem
from manifest_platform.operations.explain import StepView, explanation
from manifest_platform.operations.landing import not_registered
from manifest_platform.pipeline.blackout import blackout_reason
from manifest_platform.pipeline.chain import broken
from manifest_platform.pipeline.pipeline import loads


@app.command(cls=Command, epilog=examples("explain run=2026-01-31-12-00-00"))
def explain(context: typer.Context, item: ItemName, target: Target = None) -> int:
    """Explains what happens next with an item, and what prevents it.

    Prints a paragraph: the item's state at each step, what blocks it, who works on it, which items come before it, and what to
    do. With several targets it has the steps of all, or only those of --target.
    """
    with open_pipeline(context, target=target) as pipeline:
        try:
            key = item_key(pipeline, item)
        except (UnknownItem, WrongUse):
            text = not_registered(pipeline, item)
            if text is None:
                raise
            if as_json(context):
                print_json({"item": None, "text": text, "steps": []})
            else:
                say(wrapped(text, others="  "))
            return Exit.DONE
        asked = [pipeline] if target else list(pipeline.each_target())
        others = {loads(one).key for one in pipeline.targets} - {one.load.key for one in asked}
        chain = [found for one in asked for found in broken(one)]
        as_typed, why = typed(context, pipeline.name), blackout_reason(pipeline)
        told = explanation(pipeline.manifest, key, as_typed, pipeline.clock(), chain, others, why)
    if as_json(context):
        print_json({"item": key, "text": told.text, "steps": [_document(view) for view in told.views]})
    else:
        say(wrapped(told.text))
    return Exit.DONE


def _document(view: StepView) -> dict[str, Any]:
    first = view.first.item.key.name if view.first else None
    return {"step": view.name, "standing": view.judged.standing, "reason": view.judged.reason, "before": view.before} | (
        {"first": first} if first else {}
    )
