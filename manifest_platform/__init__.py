"""Loads directories from object storage into warehouse tables: ordered and exactly once.

Layers, top to bottom; each imports only from those below it:

    definitions, demo, testing, __main__    Dagster's code location; the demo; contract suites of plug-ins; `python -m`
    cli, orchestration               the user interfaces: the terminal, and Dagster
    operations                       operations that both offer: explain, doctor, archive, migration
    pipeline                         the steps of an item over the manifest: discover, shred, load, merge, full; drain
    config                           the typed configuration, composed of the models that packages and plug-ins declare
    sources                          plug-ins for kinds of landing: names, reading, shredding, terms
    shred, merging, warehouse, spark, fake_vault    the work itself, independent of each other; a fake vault for trials
    packs                            several small files in one
    column_names, column_types, landed_files, listing, questions, record_files    columns, files, listings; confined queries
    settings, progress               the base of settings models; the progress of long work
    storage, quantities              local paths and s3:// alike; times and sizes in words
    manifest                         the control plane: records, items, leases, order
    nested_types, outward, releases  types of structs and arrays; cleaning texts before they leave; compatibility of releases
    notices, s3_files, secret_references    hints of changes; files in S3 whose requests need headers; places of secrets
    aws                              the clients of AWS's services
    masking                          secrets: reading and masking them
    carried, deployments, extras, failpoints, faults, plugins, remedies, spool    modules that import none of these
"""

from typing import Any

__version__ = "0.2.0"


def __dir__() -> list[str]:
    """Lists the component `Dataset`, too, because Dagster looks for components in this module."""
    return [*globals(), "Dataset"]


def __getattr__(name: str) -> Any:
    """Loads the component `Dataset` for Dagster projects on demand, so that nothing else imports Dagster."""
    if name == "Dataset":
        from manifest_platform.orchestration.component import Dataset

        return Dataset
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
