"""`doctor`: examines a dataset, and repairs what is safe to repair."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from manifest_platform.cli.app import Recording, app, as_json, examples, fail
from manifest_platform.cli.context import Target, open_pipeline, operator
from manifest_platform.cli.exits import Exit
from manifest_platform.cli.expected import EXPECTED
from manifest_platform.cli.output import print_json, print_lines, say, warn
from manifest_platform.cli.remedies import Typed, document, typed, with_remedy
from manifest_platform.pipeline import Pipeline

if TYPE_CHECKING:
    from manifest_platform.operations.doctor import Diagnosis, Finding


@app.command(cls=Recording, epilog=examples("doctor", "doctor --repair", "doctor --clean --grace 48"))
def doctor(
    context: typer.Context,
    repair: Annotated[bool, typer.Option("--repair", help="Repair what is safe to repair, and print what was done.")] = False,
    clean: Annotated[bool, typer.Option("--clean", help="Remove orphaned shredded and merged objects.")] = False,
    grace: Annotated[
        float | None,
        typer.Option(
            min=0, metavar="HOURS", help="Keep orphaned objects that are newer. Default: 24; a week for merged objects."
        ),
    ] = None,
    read: Annotated[
        int,
        typer.Option(min=0, metavar="MIB", help="Amount of needed shredded objects to read and compare with their checksums."),
    ] = 256,
    warehouse: Annotated[bool, typer.Option(help="Compare the manifest with the warehouse's ledger.")] = True,
    objects: Annotated[bool, typer.Option(help="Look for orphaned objects, and compare the catalog.")] = True,
    target: Target = None,
) -> int:
    """Examines a dataset for faults: its log, its warehouse and its objects.

    Prints each fault with its item, its cause and the command that repairs it. Exit code 1 if there are any.
    """
    from manifest_platform.operations.doctor import Doctor

    with open_pipeline(context, author=operator(), target=target) as pipeline:
        as_typed = typed(context, pipeline.name)
        examiner = Doctor(pipeline, warehouse, objects, None if grace is None else timedelta(hours=grace))
        examiner.read, examiner.told, examiner.target = read << 20, warn, target
        try:
            diagnosis = examiner.repair() if repair else examiner.examine()
            if clean:
                diagnosis = examiner.clean(diagnosis)
        except BaseException as error:
            if not as_json(context):
                _print_done(examiner.done)
            elif isinstance(error, EXPECTED):
                remedy = getattr(error, "remedy", None)
                message = with_remedy(str(error), remedy, as_typed) if remedy else str(error)
                return fail(message, error, Exit.FAILED, as_json=True, done=examiner.done)
            elif examiner.done:
                warn(f"done: {'; '.join(examiner.done)}")
            raise
        _print(context, pipeline, diagnosis, examiner.done, as_typed)
        for note in examiner.notes():
            warn(f"note: {note}")
    return Exit.DONE if diagnosis.healthy else Exit.FAILED


def _print_done(done: list[str]) -> None:
    for line in done:
        say(f"✓ {line}")


def _print(context: typer.Context, pipeline: Pipeline, diagnosis: Diagnosis, done: list[str], as_typed: Typed) -> None:
    if as_json(context):
        found = [_document(finding, as_typed) for finding in diagnosis.findings]
        print_json({"dataset": pipeline.name, "items": diagnosis.items, "done": done, "findings": found})
        return
    _print_done(done)
    for finding in diagnosis.findings:
        say(f"✗ {finding.subject}: {finding.kind}")
        print_lines({"cause": finding.cause, "command": as_typed(finding.remedy)})
    count = len(diagnosis.findings)
    verdict = "nothing is wrong" if diagnosis.healthy else f"{count:,} {'thing is' if count == 1 else 'things are'} wrong"
    say(f"dataset {pipeline.name}, {diagnosis.items:,} items: {verdict}")


def _document(finding: Finding, as_typed: Typed) -> dict[str, Any]:
    told = {name: value for name, value in document(finding, as_typed).items() if value != ""}
    return {**told, "kind": finding.kind.name.lower()}
