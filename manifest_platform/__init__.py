"""Directories in object storage become ordered, exactly-once warehouse tables.

Layers, top to bottom; each imports only from those below it:

    definitions, demo, testing, __main__    Dagster's code location; the demo; contract suites of plug-ins; `python -m`
    cli, orchestration               what people touch: the terminal, and Dagster
    operations                       what both offer, free of both: doctor, archive, migration
    pipeline                         an item's steps as programs over the manifest: discover, shred, load, merge, full; drain
    config                           the one typed configuration, composed of what the plug-ins declare
    sources                          plug-ins: what lands, how it is read, and its words
    shred, merging, warehouse, spark, fake_vault    the work itself, independent of each other; and a vault to try it on
    column_names, column_types, landed_files, listing, questions, record_files    what data looks like and may be asked; records
    settings, progress               what settings are made of; how far work is
    storage, quantities              local paths and s3:// alike; times and sizes in words
    manifest                         the control plane: records, items, leases, order
    outward, releases                texts fit to go out; which release may write what another has written
    masking                          secrets, read and masked
    carried, deployments, extras, failpoints, faults, plugins, remedies, spool    files of a wheel; what is installed; names
"""

from typing import Any

__version__ = "0.2.0"


def __dir__() -> list[str]:
    """What is here, the component included: Dagster looks for components among it."""
    return [*globals(), "Dataset"]


def __getattr__(name: str) -> Any:
    """The component for Dagster projects, `manifest_platform.Dataset`; nothing else imports Dagster for it."""
    if name == "Dataset":
        from manifest_platform.orchestration.component import Dataset

        return Dataset
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
