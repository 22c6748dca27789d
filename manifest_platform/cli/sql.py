"""`sql`: runs a read-only query in the warehouse."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer

from manifest_platform.cli.app import Command, app, as_json, examples
from manifest_platform.cli.context import Target, chosen_dataset, configuration, only_target
from manifest_platform.cli.exits import Exit
from manifest_platform.cli.output import print_answer


@app.command(
    cls=Command,
    epilog=examples('sql "SELECT app_id, count(*) FROM events GROUP BY 1"', 'sql "SELECT * FROM bad LIMIT 5" --json'),
)
def sql(
    context: typer.Context,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="One SQL query.")],
    target: Target = None,
) -> int:
    """Runs a read-only query in the warehouse.

    Write the dataset's tables without a schema. The ledger is manifest_platform.ledger, or ledger__DATASET where
    each dataset has its own.
    """
    from manifest_platform.warehouse.apply import open_warehouse

    settings = configuration(context)
    dataset = settings.dataset(chosen_dataset(context))
    engine = settings.engine_of(dataset, only_target(context, target))
    with closing(open_warehouse(engine, dataset, settings.datasets[dataset].load.schema_name, read_only=True)) as warehouse:
        print_answer(lambda most: warehouse.query(query, most), as_json(context))
    return Exit.DONE
