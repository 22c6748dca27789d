"""Directories in object storage become ordered, exactly-once warehouse tables.

Layers, top to bottom; each imports only from those below it:

    definitions, demo             Dagster's code location; the demo's story
    cli, orchestration            what people touch
    doctor                        what is wrong with a dataset, and mending what is safe
    pipeline, migration           one feed from landing to warehouse, decided by the manifest; coming from another manifest
    stores                        the manifest store that is configured
    config                        the one typed configuration
    landing, shred, warehouse     the work itself; independent of each other (and `spark`, the session)
    listing, column_types         what shredded data looks like
    storage, identity             local paths and s3:// alike; who works
    manifest                      the control plane: records, items, leases, order
"""

__version__ = "0.1.0"
