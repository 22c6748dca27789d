"""`archive`: moves the records of old, finished items from the manifest's store to Parquet files."""

from __future__ import annotations

import dataclasses
import re
from datetime import timedelta
from typing import Annotated

import typer

from manifest_platform.cli.app import Recording, WrongUse, app, as_json, examples
from manifest_platform.cli.context import open_pipeline
from manifest_platform.cli.exits import Exit
from manifest_platform.cli.output import print_json, say
from manifest_platform.quantities import size_of

_UNITS = {"h": "hours", "d": "days", "w": "weeks"}


@app.command(cls=Recording, epilog=examples("archive --older-than 90d --dry-run"))
def archive(
    context: typer.Context,
    older_than: Annotated[
        str, typer.Option(metavar="AGE", help="Move items whose newest record is older: 90d, 36h or 8w. Must exceed `limits`.")
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be moved, and move nothing.")] = False,
) -> int:
    """Moves the records of finished items to Parquet files at manifest.archive.

    An item is finished if every step is done with it and the watermark is past it. The manifest still knows an archived item,
    and `history` still shows it. Exit code 4 if there is nothing to move.
    """
    from manifest_platform.operations.archive import archive_dataset

    age = _age(older_than)
    with open_pipeline(context) as pipeline:
        location = pipeline.config.manifest.archive
        done = archive_dataset(pipeline, age, dry_run)
    if as_json(context):
        print_json({**dataclasses.asdict(done), "dry_run": dry_run})
    elif dry_run:
        say(f"{done.items:,} items with {done.records:,} records would move to {location}")
    else:
        left = f"; {done.left:,} changed meanwhile and were not moved" if done.left else ""
        files = f"{done.files:,} files, {size_of(done.bytes)}"
        say(f"{done.items:,} items with {done.records:,} records moved to {location} ({files}){left}")
    return Exit.DONE if done.items else Exit.NOTHING


def _age(text: str) -> timedelta:
    parts = re.fullmatch(r"([1-9][0-9]{0,4})([hdw])", text)
    if not parts:
        raise WrongUse(f"--older-than {text}: write a number and h, d or w, such as 90d")
    return timedelta(**{_UNITS[parts[2]]: int(parts[1])})
