"""`spark`: prepares a cluster that runs the Spark jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from manifest_platform.cli.app import Command, WrongUse, as_json, examples, group
from manifest_platform.cli.exits import Exit
from manifest_platform.cli.output import print_json, say

spark = group("spark", "Prepares a cluster that runs the Spark jobs.")


@spark.command("package", cls=Command, epilog=examples("spark package", "spark package dist/workers.tar.gz"))
def package(
    context: typer.Context,
    file: Annotated[
        Path, typer.Argument(metavar="[FILE]", help="The archive to write, a .tar.gz file.", show_default=True)
    ] = Path("manifest_platform_worker.tar.gz"),
) -> int:
    """Writes an archive that brings this package to a cluster's workers.

    Its path is the setting `spark.package`. It holds the packages of this environment that shredding and merging import, so
    the workers need nothing but Python of the same version, on machines of the same kind. Needs no configuration.
    """
    from manifest_platform.quantities import size_of
    from manifest_platform.spark.package import build

    try:
        done = build(file)
    except OSError as error:
        raise WrongUse(f"{file} cannot be written ({error.strerror}): name a file in a folder that you may write to") from error
    if as_json(context):
        packed = {"file": str(done.path.absolute()), "bytes": done.bytes, "python": done.python, "packages": done.packages}
        print_json(packed)
    else:
        say(f"{done.path}: {size_of(done.bytes)}, for Python {done.python}, with {len(done.packages)} packages")
        say(f"  set spark.package: {done.path.absolute()}")
    return Exit.DONE
