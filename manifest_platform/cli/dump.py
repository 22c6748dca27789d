"""`dump` and `import`: write a manifest as lines of JSON, and put it into another store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from manifest_platform.cli.app import Command, WrongUse, app, as_json
from manifest_platform.cli.context import open_pipeline
from manifest_platform.cli.exits import Exit
from manifest_platform.cli.output import print_json, print_json_line, say


@app.command(cls=Command)
def dump(
    context: typer.Context,
    feed: Annotated[str | None, typer.Option(metavar="NAME", help="Dump the log of this feed only.")] = None,
) -> int:
    """Writes the whole manifest of a dataset to stdout.

    Prints a line of JSON for each row. The log of a feed is a sufficient backup: after an import, `doctor --repair` rebuilds
    the other rows.
    """
    from manifest_platform.manifest.dump import dump as lines

    with open_pipeline(context) as pipeline:
        if feed:
            pipeline.manifest.steps(feed)
        for line in lines(pipeline.manifest.store, pipeline.name, feed):
            print_json_line(line)
    return Exit.DONE


@app.command("import", cls=Command)
def import_(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File that `dump` wrote.")],
) -> int:
    """Imports a dump into the configured store.

    Stop all work on the dataset before. An import overwrites nothing. To continue an interrupted import, repeat it. Exit code 4
    if the store already has all rows.
    """
    from manifest_platform.manifest.dump import put_dump
    from manifest_platform.manifest.takeover import TakenOver

    def lines() -> Iterator[str]:
        try:
            with file.open(encoding="utf-8") as text:
                yield from text
        except (OSError, UnicodeDecodeError) as error:
            raise WrongUse(f"cannot read {file}: {error}; name a file that `dump` wrote") from error

    with open_pipeline(context) as pipeline:
        store = pipeline.manifest.store  # without the takeover of an older release: its new rows would conflict with the dump's
        done = put_dump(store.store if isinstance(store, TakenOver) else store, pipeline.name, lines)
    if as_json(context):
        print_json({"dataset": pipeline.name, "written": done.written, "there": done.there})
    else:
        say(f"dataset {pipeline.name}: {done.written:,} rows imported, {done.there:,} were there already")
    return Exit.DONE if done.written else Exit.NOTHING
