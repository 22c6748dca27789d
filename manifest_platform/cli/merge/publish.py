"""`merge publish`, and the output of a publication."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from manifest_platform.cli.app import Recording, as_json
from manifest_platform.cli.exits import Exit
from manifest_platform.cli.merge.group import merge, open_merging
from manifest_platform.cli.output import print_json, say, wrapped
from manifest_platform.merging.publish import PublishReport


@merge.command(cls=Recording)
def publish(
    context: typer.Context,
    verify: Annotated[bool, typer.Option("--verify", help="Compare every entry of the catalog, and repair it.")] = False,
) -> int:
    """Closes, switches and publishes the partitions that are due, without merging.

    Exit code 1 if a publication failed, 4 if there was nothing to do.
    """
    with open_merging(context) as merging:
        report = merging.publish(verify)
    if as_json(context):
        print_json(published_document(report))
    else:
        print_published(report)
        requests = f"{report.store_requests:,} requests to the manifest, {report.catalog_requests:,} to the catalog"
        say(f"{published_words(report) or 'nothing to publish'}; {requests}")
    if not report.succeeded:
        return Exit.FAILED
    return Exit.DONE if changed(report) else Exit.NOTHING


def changed(report: PublishReport) -> bool:
    """Returns True if a publication changed anything."""
    return bool(report.closed or report.switched or report.entered or report.shown or report.published or report.put_back)


def print_published(report: PublishReport) -> None:
    """Prints the published, waiting and failed partitions, a line each."""
    for place, version in report.published:
        say(f"✓ {place.table} {place.day}  published as version {version}")
    for place, reason in report.waiting:
        say(wrapped(f"{place}  waits: {reason}", "· ", "    "))
    for failed in report.failed:
        kind = "transient" if failed.transient else "a person must act"
        say(wrapped(f"{failed.place}  not published ({kind}): {failed.error}", "✗ ", "    "))
    if report.busy:
        say(f"· {report.busy} is publishing now, and continues with the partitions that are closed and switched")


def published_words(report: PublishReport) -> str:
    """Returns the counts of a publication as text."""
    counts = {
        "closed": len(report.closed),
        "switched": len(report.switched),
        "shown": len(report.shown),
        "published": len(report.published),
        "put back": len(report.put_back),
        "not published": len(report.failed),
    }
    return ", ".join(f"{count:,} {word}" for word, count in counts.items() if count)


def published_part(report: PublishReport | None) -> dict[str, Any]:
    """Returns the part of a larger JSON document that describes a publication."""
    return {"published": published_document(report) if report else None}


def published_document(report: PublishReport) -> dict[str, Any]:
    """Returns the JSON document of a publication."""
    places = ("closed", "switched", "entered", "shown", "put_back")
    return {
        **{name: [str(place) for place in getattr(report, name)] for name in places},
        "published": [{"partition": str(place), "version": version} for place, version in report.published],
        "waiting": [{"partition": str(place), "reason": reason} for place, reason in report.waiting],
        "failed": [{"place": str(one.place), "error": one.error, "passing": one.transient} for one in report.failed],
        "busy": report.busy,
        "store_requests": report.store_requests,
        "catalog_requests": report.catalog_requests,
    }
