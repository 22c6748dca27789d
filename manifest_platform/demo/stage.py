"""The demo's stage: its directory, the configuration that points there, and how commands are typed in a story.

Belongs here: what the stories share. What is typed (`$ manifest-platform …`) is run as the command line runs it, within this
process, so that one Spark session serves all.
"""

from __future__ import annotations

import os
import shlex
import shutil
import textwrap
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import typer
import yaml

from manifest_platform import cli, config
from manifest_platform.cli import Exit
from manifest_platform.cli.output import WIDTH
from manifest_platform.sources.snowplow.settings import SnowplowSettings

REPOSITORY = Path(__file__).parents[2]
HOME_VARIABLE = "MANIFEST_PLATFORM_DEMO"
"""Where the demo lives: the variable that its configurations refer to as well."""
MARKER = "made-by-the-demo"
"""A file that says that a directory is the demo's, and may be removed."""


class DemoFailed(RuntimeError):
    """The demo cannot be told, or did not go as it is told."""


def home_of(file: str, folder: str, dataset: str) -> Path:
    """A story's directory, `folder` of the repository unless the environment names another.

    Points the configuration, a file of the repository, at it. Raises DemoFailed if that reaches beyond it.
    """
    home = Path(os.environ.get(HOME_VARIABLE) or REPOSITORY / folder).absolute()
    os.environ[HOME_VARIABLE] = str(home)
    os.environ[config.VARIABLE] = str(REPOSITORY / file)
    settings = config.load()
    manifest = settings.manifest
    places = [settings.warehouse.place, manifest.store.removeprefix("sqlite:///")]
    places += [place for place in (manifest.overflow, manifest.archive) if place]
    for one in settings.datasets.values():
        schemas = one.shred.schemas if isinstance(one, SnowplowSettings) else ()
        places += [one.landing.root, one.shred.output, *schemas]
        places += [one.merge.output] if one.merge else []
    outside = [place for place in places if not Path(place).is_relative_to(home)]
    if outside or list(settings.datasets) != [dataset]:
        raise DemoFailed(
            f"{REPOSITORY / file} is not the demo's any more (only dataset {dataset}, everything under {home}):"
            f" it has {', '.join(outside) or ', '.join(settings.datasets)}. The demo touches nobody's data: put the file back,"
            f" and name yours in {config.VARIABLE}"
        )
    return home


def clean(home: Path) -> None:
    """Removes a directory that an earlier demo made. Raises DemoFailed for one that it did not make."""
    if not home.exists():
        return
    strange = [path.name for path in home.iterdir() if not path.name.startswith("manifest.db")]  # `status` makes that one
    if strange and not (home / MARKER).exists():
        raise DemoFailed(f"{home} was not made by the demo (no {MARKER} in it); remove it yourself, or set {HOME_VARIABLE}")
    shutil.rmtree(home)


def configuration_with(file: str, store: str, home: Path) -> Path:
    """A configuration of the repository with another store, as a file in the demo's directory."""
    settings = yaml.safe_load((REPOSITORY / file).read_text())
    settings["manifest"]["store"] = store
    settings["spark"]["conf"] = str(REPOSITORY / settings["spark"]["conf"])
    copy = home / file
    copy.write_text(yaml.safe_dump(settings, sort_keys=False))
    return copy


@contextmanager
def stage(home: Path) -> Generator[None]:
    """The demo's directory, made for the story; says how long that took."""
    begun = time.monotonic()
    home.mkdir(parents=True)
    (home / MARKER).touch()
    yield
    say(f"Done in {time.monotonic() - begun:.0f} s. Next, try")


def type_(command: str, expected: Exit = Exit.DONE) -> None:
    """Shows a command as an operator types it, and runs it. Raises DemoFailed where it ends otherwise than expected."""
    typer.secho(f"\n$ {command}", bold=True)
    code = cli.main(shlex.split(command)[1:])
    if code != expected:
        raise DemoFailed(f"`{command}` ended with {code}, and {int(expected)} was to be expected")


def say(text: str) -> None:
    """A sentence of the story."""
    typer.secho(f"\n{textwrap.fill(text, WIDTH)}", fg="cyan")
