"""A command as another package would bring it: it says how far each feed of a dataset is loaded."""

from __future__ import annotations

from typing import Annotated

import typer

from manifest_platform.cli.app import Exit, as_json
from manifest_platform.cli.context import open_pipeline
from manifest_platform.cli.output import print_json, print_lines
from manifest_platform.operations.standing import step_status
from manifest_platform.pipeline import LOAD


def freshness(context: typer.Context, nothing: Annotated[str, typer.Option(help="What stands for no item.")] = "-") -> int:
    """Says how far each feed is loaded.

    Exit 4 where nothing is.
    """
    with open_pipeline(context) as pipeline:
        loaded = {feed: step_status(pipeline, feed, LOAD).watermark for feed in pipeline.feeds}
    if as_json(context):
        print_json(loaded)
    else:
        print_lines({feed: item or nothing for feed, item in loaded.items()})
    return Exit.DONE if any(loaded.values()) else Exit.NOTHING
