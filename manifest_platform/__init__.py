"""Directories in object storage become ordered, exactly-once warehouse tables.

Layers, top to bottom; each imports only from those below it:

    cli, orchestration, demo    what people touch
    pipeline                    one feed from landing to warehouse, decided by the manifest
    config                      the one typed configuration
    landing, shred, warehouse   the work itself; independent of each other
    listing, storage            what shredded data looks like; local paths and s3:// alike
    manifest                    the control plane: records, items, leases, order
"""
