"""The demo's stage: its directory, the configuration that points there, and how commands are typed in a story.

Belongs here: what the stories share. What is typed (`$ manifest-platform …`) is run as the command line runs it, within this
process, so that one Spark session serves all.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import textwrap
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import typer
import yaml

from manifest_platform import cli, config
from manifest_platform.carried import carried
from manifest_platform.cli import Exit
from manifest_platform.cli.output import WIDTH
from manifest_platform.sources.snowplow.settings import SnowplowSettings

HOME_VARIABLE = "MANIFEST_PLATFORM_DEMO"
"""Where the demo lives: the variable that its configurations refer to as well."""
MARKER = "made-by-the-demo"
"""A file that says that a directory is the demo's, and may be removed."""


DAGSTER_HOME = Path(".dagster_home")
"""The folder of Dagster's instance on which the demo's data are looked at."""


class DemoFailed(RuntimeError):
    """The demo cannot be told, or did not go as it is told."""


def home_of(file: str, folder: str, dataset: str) -> Path:
    """A story's directory, `folder` of the current one unless the environment names another.

    Points the story's configuration at it: the file of that name here, else the package's. Raises DemoFailed if that reaches
    beyond it.
    """
    home = Path(os.environ.get(HOME_VARIABLE) or folder).absolute()
    here = Path(file).absolute()
    os.environ[HOME_VARIABLE] = str(home)
    os.environ[config.VARIABLE] = str(here if here.exists() else carried(file))
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
            f"{here} is not the demo's (only dataset {dataset}, everything under {home}): it has"
            f" {', '.join(outside) or ', '.join(settings.datasets)}. The demo touches nobody's data: start it in an empty"
            f" folder, or put the demo's file back and name yours in {config.VARIABLE}"
        )
    return home


def lay_out(file: str) -> None:
    """Puts a story's configuration into this folder, and that of Dagster's instance into DAGSTER_HOME, where they are not."""
    for name, place in ((file, Path(file)), ("dagster.yaml", DAGSTER_HOME / "dagster.yaml")):
        if not place.exists():
            place.parent.mkdir(mode=0o700, exist_ok=True)
            shutil.copyfile(carried(name), place)
    os.environ[config.VARIABLE] = str(Path(file).absolute())


def clean(home: Path, file: str | None = None) -> None:
    """Removes a directory that an earlier demo made; and `file`, the configuration, where it is as the demo wrote it.

    Raises DemoFailed for a directory that no demo made.
    """
    here = Path(file) if file else None
    if here and here.exists() and not here.samefile(own := carried(here.name)) and here.read_bytes() == own.read_bytes():
        here.unlink()
    if not home.exists():
        return
    strange = [path.name for path in home.iterdir() if not path.name.startswith("manifest.db")]  # `status` makes that one
    if strange and not (home / MARKER).exists():
        raise DemoFailed(f"{home} was not made by the demo (no {MARKER} in it); remove it yourself, or set {HOME_VARIABLE}")
    shutil.rmtree(home)


def configuration_with(file: str, store: str, home: Path) -> Path:
    """A story's configuration with another store, as a file in the demo's directory."""
    settings = yaml.safe_load(Path(file).read_text())
    settings["manifest"]["store"] = store
    settings["spark"]["conf"] = config.load(file).spark.conf
    copy = home / file
    copy.write_text(yaml.safe_dump(settings, sort_keys=False))
    return copy


def program(name: str) -> str:
    """How a program of this installation is typed here: by its name where the PATH leads to it, else by its path."""
    own = Path(sys.executable).with_name(name)
    if shutil.which(name) == str(own):
        return name
    return os.path.relpath(own) if own.is_relative_to(Path.cwd()) else str(own)


def ui_command(file: str) -> str:
    """The command that shows a story in Dagster: the repository's own there, else Dagster's."""
    others = file != config.DEFAULT_FILE
    if carried(file).samefile(file):
        return f"make ui{' PIPELINE=veeva' if others else ''}"
    own = f'{config.VARIABLE}="$PWD/{file}" ' if others else ""
    return f'{own}DAGSTER_HOME="$PWD/{DAGSTER_HOME}" {program("dagster")} dev -m manifest_platform.definitions'


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
