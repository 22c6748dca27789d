"""`completion`: completes commands, options, datasets and items in a shell with the Tab key.

Completion prints no errors: if the configuration or the store cannot be read, it offers nothing.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated

import typer

from manifest_platform.cli.app import PROGRAM, Command, Exit, app, as_json, given
from manifest_platform.cli.output import print_json, say
from manifest_platform.cli.shells import Shell, script

OFFERED = 30
"""The number of newest items of each feed that are offered."""


@app.command(
    cls=Command,
    epilog="\b\nTo complete in every new shell:\n"
    f"  bash  echo 'eval \"$({PROGRAM} completion bash)\"' >> ~/.bashrc\n"
    f"  zsh   echo 'eval \"$({PROGRAM} completion zsh)\"' >> ~/.zshrc\n"
    f"  fish  {PROGRAM} completion fish \\\n"
    f"          > ~/.config/fish/completions/{PROGRAM}.fish",
)
def completion(
    context: typer.Context, shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="Shell to print it for.")]
) -> int:
    """Prints a shell script that completes commands, options, datasets and items with the Tab key."""
    text = script(context.find_root().command, PROGRAM, shell)
    if as_json(context):
        print_json({"shell": shell, "script": text})
    else:
        say(text)
    return Exit.DONE


def datasets(context: typer.Context, incomplete: str) -> list[str]:
    """Returns the configured datasets whose names begin with `incomplete`."""
    from manifest_platform import config

    with suppress(Exception):
        return [name for name in config.load(given(context, "config")).datasets if name.startswith(incomplete)]
    return []


def items(context: typer.Context, incomplete: str) -> list[str]:
    """Returns the newest items whose names begin with `incomplete`."""
    from manifest_platform.cli.context import open_pipeline
    from manifest_platform.operations.search import Search, search

    with suppress(Exception), open_pipeline(context) as pipeline:
        found = [
            hit for feed in pipeline.source.feeds for hit in search(pipeline.manifest, Search(feed), OFFERED, OFFERED).found
        ]
        return [hit.item.key.name for hit in found if hit.item.key.name.startswith(incomplete)]
    return []
