"""The parts that the stories share: the demo's directory, its configuration, and running commands.

A command (`$ manifest-platform …`) runs exactly as on the command line, but in this process, so that all commands share one
Spark session.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import textwrap
import time
from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import typer
import yaml

from manifest_platform import cli, config
from manifest_platform.carried import carried
from manifest_platform.cli import Exit
from manifest_platform.cli.output import WIDTH
from manifest_platform.demo.postgresql import PostgreSQLServer
from manifest_platform.sources.snowplow.settings import SnowplowSettings
from manifest_platform.warehouse.control_table import ControlTable

HOME_VARIABLE = "MANIFEST_PLATFORM_DEMO"
"""The environment variable with the demo's directory. The demo's configuration files use it too."""
MARKER = "made-by-the-demo"
"""A file that marks a directory as the demo's, so that it may be removed."""


SERVER_FOLDER = "postgresql"
"""The folder of the demo's own database server, in the demo's directory."""

DAGSTER_HOME = Path(".dagster_home")
"""The folder of the Dagster instance that shows the demo's data."""


class DemoFailed(RuntimeError):
    """The demo cannot run here, or a command of it ended in an unexpected way."""


def home_of(file: str, folder: str, dataset: str) -> Path:
    """Returns a story's directory: the one of HOME_VARIABLE, else `folder` in the current folder.

    Sets the environment variables of the configuration: the file `file` in the current folder, else the package's. Raises
    DemoFailed if this configuration names another dataset, or a place outside the demo's directory.
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
            f"{here} is not the demo's file, which has only dataset {dataset}, and all places under {home}. Yours has"
            f" {', '.join(outside) or ', '.join(settings.datasets)}. The demo never touches other data. Run it in an empty"
            " folder"
        )
    return home


def lay_out(file: str) -> None:
    """Copies a story's configuration into this folder, and that of Dagster's instance into DAGSTER_HOME, unless they exist."""
    for name, place in ((file, Path(file)), ("dagster.yaml", DAGSTER_HOME / "dagster.yaml")):
        if not place.exists():
            place.parent.mkdir(mode=0o700, exist_ok=True)
            shutil.copyfile(carried(name), place)
    os.environ[config.VARIABLE] = str(Path(file).absolute())


def clean(home: Path, file: str | None = None) -> None:
    """Removes the directory of an earlier demo, and the configuration `file` if nobody has changed it.

    Raises DemoFailed if the directory was not made by a demo.
    """
    here = Path(file) if file else None
    if here and here.exists() and not here.samefile(own := carried(here.name)) and here.read_bytes() == own.read_bytes():
        here.unlink()
    if not home.exists():
        return
    strange = [path.name for path in home.iterdir() if not path.name.startswith("manifest.db")]  # `status` creates that file
    if strange and not (home / MARKER).exists():
        raise DemoFailed(f"{home} was not made by the demo (no {MARKER} in it); remove it yourself, or set {HOME_VARIABLE}")
    PostgreSQLServer(home / SERVER_FOLDER).stop()
    shutil.rmtree(home)


def configuration_with(file: str, home: Path, **changed: Any) -> Path:
    """Writes a story's configuration into the demo's directory with other values for some keys, and returns its path.

    It needs no environment variable: its places are relative to that directory. A changed mapping is merged into the original,
    except that of the warehouse, which replaces it.
    """
    text = re.sub(rf"\$\{{{HOME_VARIABLE}:-[^}}]*\}}", ".", Path(file).read_text())
    settings = yaml.safe_load(text)
    changed = {"spark": {"conf": config.load(file).spark.conf}, **changed}
    settings.pop("warehouse" if "warehouse" in changed else "", None)
    copy = home / file
    copy.write_text(yaml.safe_dump(_merged(settings, changed), sort_keys=False))
    return copy


def _merged(original: Any, changed: Any) -> Any:
    if not isinstance(original, Mapping) or not isinstance(changed, Mapping):
        return changed
    return {**original, **{key: _merged(original.get(key), value) for key, value in changed.items()}}


def target_options() -> tuple[str, ...]:
    """Returns the option that names a target, for each target; an empty text if there is only one."""
    names = tuple(config.load().engines)
    return tuple(f" --target {name}" for name in names) if len(names) > 1 else ("",)


def sql(query: str) -> str:
    """Returns the command that runs a query in the warehouse, which it names if there are several targets."""
    target = target_options()[0]
    mark = "'" if '"' in query else '"'
    return f"manifest-platform sql{target} {mark}{query}{mark}"


def ledger(dataset: str) -> str:
    """Returns the name of the warehouse's table with the ledger: on some engines, each dataset has its own."""
    with closing(config.load().warehouse.open(read_only=True)) as engine:
        return f"manifest_platform.{ControlTable(engine, 'ledger', dataset, {}).name}"


def program(name: str) -> str:
    """Returns the way to type a program of this installation: its name if the PATH finds it, else its path."""
    own = Path(sys.executable).with_name(name)
    if shutil.which(name) == str(own):
        return name
    return os.path.relpath(own) if own.is_relative_to(Path.cwd()) else str(own)


def ui_command(file: str, warehouse: str | None = None) -> str:
    """Returns the command that shows a story in Dagster: `make ui` in the repository, else `dagster dev`.

    `warehouse`: that of the story, if it is another than the usual one. Its configuration is in the environment then.
    """
    others = file != config.DEFAULT_FILE
    if carried(file).samefile(file):
        return f"make ui{' PIPELINE=veeva' if others else ''}{f' WAREHOUSE={warehouse}' if warehouse else ''}"
    own = f'{config.VARIABLE}="$PWD/{file}" ' if others and not warehouse else ""
    return f'{own}DAGSTER_HOME="$PWD/{DAGSTER_HOME}" {program("dagster")} dev -m manifest_platform.definitions'


@contextmanager
def stage(home: Path, then: str = "Try these commands next:") -> Generator[None]:
    """Creates the demo's directory for the block, then prints how long the story took, and `then`."""
    begun = time.monotonic()
    home.mkdir(parents=True)
    (home / MARKER).touch()
    yield
    say(f"Done in {time.monotonic() - begun:.0f} s. {then}")


def type_(command: str, expected: Exit = Exit.DONE) -> None:
    """Prints a command as an operator types it, and runs it. Raises DemoFailed if its exit code is not the expected one."""
    typer.secho(f"\n$ {command}", bold=True)
    code = cli.main(shlex.split(command)[1:])
    if code != expected:
        raise DemoFailed(f"`{command}` ended with exit code {code}, expected: {int(expected)}")


def say(text: str) -> None:
    """Prints a paragraph of the story."""
    typer.secho(f"\n{textwrap.fill(text, WIDTH)}", fg="cyan")
