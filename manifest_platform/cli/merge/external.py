"""`merge external-schema`: the SQL by which a warehouse reads the published tables."""

from __future__ import annotations

from typing import Annotated

import typer

from manifest_platform import storage
from manifest_platform.cli.app import Command, as_json
from manifest_platform.cli.exits import Exit
from manifest_platform.cli.merge.group import merge, open_merging
from manifest_platform.cli.output import print_json, say, wrapped
from manifest_platform.manifest import Refused
from manifest_platform.merging.catalogs.catalog import CatalogRejected


@merge.command("external-schema", cls=Command)
def external_schema(
    context: typer.Context,
    role: Annotated[str | None, typer.Option("--role", metavar="ARN", help="The role that the warehouse takes on.")] = None,
    to: Annotated[
        list[str] | None, typer.Option("--to", metavar="WHO", help="Grant it to a user, role:NAME, group:NAME or public.")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", metavar="SCHEMA", help="Its name, if not the catalog's.")] = None,
) -> int:
    """Prints the SQL by which a warehouse reads the published tables: external schemas, and grants.

    Nothing is changed: give it to the warehouse. What the role must be allowed stands in it as comments.
    """
    with open_merging(context) as merging:
        known = {table.schema for table in merging.inventory.tables() if not table.dropped}
        try:
            found = merging.catalog().external_schemas(sorted(known or {merging.pipeline.name}), role, to or (), name)
        except CatalogRejected as error:
            raise Refused(str(error)) from error
        read = (merging.output, storage.as_uri(merging.pipeline.dataset.shred.output))
    needed = [*found.needed, *(f"s3:GetObject on {uri}/*" for uri in read)]
    if as_json(context):
        print_json({"statements": found.statements, "needed": needed})
        return Exit.DONE
    say(wrapped(f"The role needs {', '.join(found.needed)}", "-- ", "--   "))
    for uri in read:
        say(f"-- and s3:GetObject on {uri}/*")
    for statement in found.statements:
        say(f"{statement};")
    return Exit.DONE
