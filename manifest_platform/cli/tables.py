"""`tables`: compares the rows of each table according to the manifest's log with the warehouse."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from manifest_platform.cli.app import Command, app, as_json
from manifest_platform.cli.context import Target, open_pipeline
from manifest_platform.cli.exits import Exit
from manifest_platform.cli.output import print_json, print_table, say, warn, wrapped
from manifest_platform.cli.remedies import Typed, typed
from manifest_platform.operations.tables import Difference, TableState, TableStates, states_of_tables


@app.command(cls=Command)
def tables(
    context: typer.Context,
    warehouse: Annotated[
        bool, typer.Option("--warehouse/--no-warehouse", help="Compare with the warehouse, or read the log only.")
    ] = True,
    target: Target = None,
) -> int:
    """Compares the rows of each table in the manifest's log with the warehouse.

    Shows for each table: loaded rows, items, the first and the last item, and the types of its rows with their versions.
    `TABLE_deletes` counts the rows that loads deleted by key. Reads the whole log. A load that runs at the same time can look
    like a difference: run the command again. With several targets, it compares each. Exit code 1 if a count differs, 4 if
    nothing is loaded.
    """
    with open_pipeline(context, target=target) as pipeline:
        asked = [target] if target else pipeline.targets
        found = {name: states_of_tables(pipeline.at(name), warehouse) for name in asked}
        as_typed = typed(context, pipeline.name)
    if as_json(context):
        documents = {name: _document(states, as_typed) for name, states in found.items()}
        print_json(next(iter(documents.values())) if len(documents) == 1 else {"targets": documents})
    for name, states in () if as_json(context) else found.items():
        if len(found) > 1:
            say(f"target {name}")
        _print(states, warehouse, as_typed)
    if any(states.differences for states in found.values()):
        return Exit.FAILED
    return Exit.DONE if any(states.items for states in found.values()) else Exit.NOTHING


def _print(states: TableStates, warehouse: bool, as_typed: Typed) -> None:
    if states.tables:
        heads = ("table", "rows", "items", *(("ledger", "warehouse") if warehouse else ()))
        print_table(heads, [_row(one, warehouse) for one in states.tables])
        for one in states.tables:
            span = f"{one.first.name} to {one.last.name}" if one.first and one.last else ""
            types = f"; {', '.join(sorted(one.types))}" if one.types else ""
            if span:
                say(wrapped(f"{one.table}: {span}{types}", "  ", "    "))
    uncounted = f", {states.uncounted:,} of them without rows in their records" if states.uncounted else ""
    accepted = f", {states.accepted:,} loaded before the warehouse was accepted as it is" if states.accepted else ""
    say(f"{len(states.tables):,} tables, {states.items:,} loaded items{uncounted}{accepted}")
    for difference in states.differences:
        warn(wrapped(difference.text, "differs: ", "  "))
    for command in _commands(states.differences, as_typed):
        warn(f"next: {command}")


def _row(one: TableState, warehouse: bool) -> tuple[str, ...]:
    asked = tuple("-" if count is None else f"{count:,}" for count in (one.ledger, one.warehouse)) if warehouse else ()
    return (one.table, f"{one.rows:,}", f"{one.items:,}", *asked)


def _commands(differences: list[Difference], as_typed: Typed) -> list[str]:
    """Returns the commands of the remedies, each once."""
    return list(dict.fromkeys(as_typed(one.remedy) for one in differences if one.remedy))


def _document(states: TableStates, as_typed: Typed) -> dict[str, Any]:
    differences = [
        {"table": one.table, "difference": one.text, "command": as_typed(one.remedy) if one.remedy else None}
        for one in states.differences
    ]
    counts = {"items": states.items, "uncounted": states.uncounted, "accepted": states.accepted}
    found = [{**vars(one), "types": sorted(one.types)} for one in states.tables]
    return {"tables": found, **counts, "differences": differences}
