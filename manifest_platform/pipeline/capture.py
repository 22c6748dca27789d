"""Capturing a dataset's Vault: what `landing.veeva.producer` does, with the dataset's configuration and secrets."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import closing
from datetime import UTC, datetime

from manifest_platform.manifest import Refused
from manifest_platform.pipeline.pipeline import Pipeline
from manifest_platform.sources.veeva.events import Event
from manifest_platform.sources.veeva.layout import parse_window_name
from manifest_platform.sources.veeva.source import VeevaDirectData


def capture(
    pipeline: Pipeline, feeds: Collection[str] | None = None, names: Collection[str] | None = None, insist: bool = True
) -> Iterator[Event]:
    """Captures what the dataset's Vault has and the manifest does not know; what happens, and at last a CaptureReport.

    `feeds`: of those that are configured; `names`: these windows alone; `insist`: with a login too that was refused within the
    last day. Raises Refused where the dataset has no Vault to capture, for a feed that is not configured and a name that is no
    window's, and as `producer.capture`.
    """
    from manifest_platform.sources.veeva import producer  # loads an HTTP client, which no other command needs

    source = pipeline.source
    if not isinstance(source, VeevaDirectData):
        raise Refused(f"dataset {pipeline.name} is no vault: its directories are landed by others, and nothing is captured")
    configured = source.settings.vault.feeds
    if strangers := sorted(set(feeds or ()) - set(configured)):
        raise Refused(f"feed {strangers[0]} of dataset {pipeline.name} is not captured; configured are {', '.join(configured)}")
    for name in names or ():
        window = parse_window_name(name)
        if window and window.feed not in (feeds or configured):
            raise Refused(f"{name} is of feed {window.feed}, which is not to be captured: {', '.join(feeds or configured)} are")
    wanted = [feed for feed in configured if feeds is None or feed in feeds]
    with closing(source.vault()) as vault:
        try:
            yield from producer.capture(
                vault, pipeline.manifest, source.root, source.vault_id, wanted, datetime.now(UTC), names, insist=insist
            )
        except ValueError as error:
            raise Refused(str(error)) from error
