"""`merge external-schema`: the SQL with which a warehouse can read the published tables."""

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
    role: Annotated[str | None, typer.Option("--role", metavar="ARN", help="IAM role that the warehouse assumes.")] = None,
    to: Annotated[
        list[str] | None,
        typer.Option("--to", metavar="WHO", help="Grant access to a user, role:NAME, group:NAME or public. Repeatable."),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="SCHEMA", help="Name of the external schema. Default: the catalog's name.")
    ] = None,
) -> int:
    """Prints the SQL with which a warehouse can read the published tables: external schemas and grants.

    Run the SQL in the warehouse; this command changes nothing. Comments in the SQL list the permissions that the role needs.
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
