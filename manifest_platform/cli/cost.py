"""`cost`: the rows, bytes and requests that items cost in the manifest's store."""

from __future__ import annotations

import dataclasses
from itertools import islice
from typing import Annotated

import typer

from manifest_platform.cli.app import Command, app, as_json, completed_items
from manifest_platform.cli.context import item_key, open_pipeline
from manifest_platform.cli.exits import Exit
from manifest_platform.cli.output import print_json, print_table, say
from manifest_platform.manifest import Item
from manifest_platform.manifest.cost import Cost
from manifest_platform.operations.cost import costs_of
from manifest_platform.quantities import size_of


@app.command(cls=Command)
def cost(
    context: typer.Context,
    item: Annotated[
        str | None,
        typer.Argument(metavar="[ITEM]", help="Item name or URI. Default: the newest items.", autocompletion=completed_items),
    ] = None,
    feed: Annotated[str | None, typer.Option(metavar="NAME", help="Feed to read the newest items of.")] = None,
    last: Annotated[int, typer.Option(min=1, metavar="N", help="Number of the newest items.")] = 100,
) -> int:
    """Shows the rows, bytes and requests that items cost in the manifest's store.

    Columns: records, rows and bytes in the store, the transactions that wrote them, and DynamoDB's write and read units. The
    units are estimated from the sizes of the rows, as if the platform had worked on each item alone. Loads of all targets are
    counted. Exit code 4 if there are no items.
    """
    with open_pipeline(context) as pipeline:
        manifest, feed = pipeline.manifest, feed or pipeline.source.main
        items = [manifest.item(item_key(pipeline, item))] if item else list(islice(manifest.items(feed, reverse=True), last))
        told = costs_of(manifest, items[0].key.feed if items else feed, items)
    if as_json(context):
        documents = [{"item": one.key, **dataclasses.asdict(cost)} for one, cost in told]
        print_json({"items": documents, "average": _average([cost for _, cost in told])})
    elif told:
        costs = [cost for _, cost in told]
        rows = [_row(one.key.name, cost) for one, cost in told] if item else []
        average = [] if item else [_row(f"average of {len(told):,}", _average(costs))]
        most = [] if item else [_row(f"most: {name}", cost) for name, cost in [_dearest(told)]]
        print_table(("", "records", "rows", "size", "transactions", "write units", "read units"), [*rows, *average, *most])
    else:
        say("no items")
    return Exit.DONE if told else Exit.NOTHING


def _average(costs: list[Cost]) -> dict[str, float]:
    count = max(1, len(costs))
    sums = {name: sum(getattr(cost, name) for cost in costs) for name in ("records", "rows", "bytes", "transactions")}
    units = {"write_units": sum(cost.units.write for cost in costs), "read_units": sum(cost.units.read for cost in costs)}
    return {name: round(value / count, 1) for name, value in {**sums, **units}.items()}


def _dearest(told: list[tuple[Item, Cost]]) -> tuple[str, dict[str, float]]:
    item, cost = max(told, key=lambda one: one[1].units.write)
    return item.key.name, _average([cost])


def _row(name: str, cost: Cost | dict[str, float]) -> tuple[str, ...]:
    told = _average([cost]) if isinstance(cost, Cost) else cost
    numbers = {part: f"{told[part]:g}" for part in ("records", "rows", "transactions", "write_units", "read_units")}
    return (
        name,
        numbers["records"],
        numbers["rows"],
        size_of(told["bytes"]),
        numbers["transactions"],
        numbers["write_units"],
        numbers["read_units"],
    )
