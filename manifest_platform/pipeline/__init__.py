"""Datasets from landing to warehouse, as the manifest decides: the engine below the command line and Dagster alike.

Offered here: a dataset's pipeline and what is said of it. What does the work is imported from its own module, as `drain`, so
that who only asks how things stand imports neither the warehouse nor the shredding.
"""

from manifest_platform.pipeline.events import (
    Budget,
    DiscoveryReport,
    DrainReport,
    Event,
    FeedEnd,
    ItemFailed,
    Loaded,
    PutBack,
    Shredded,
    ShreddedAgain,
    ShredStarted,
    Stop,
    Waiting,
)
from manifest_platform.pipeline.pipeline import Pipeline
from manifest_platform.sources.source import LOAD, SHRED

__all__ = [
    "LOAD",
    "SHRED",
    "Budget",
    "DiscoveryReport",
    "DrainReport",
    "Event",
    "FeedEnd",
    "ItemFailed",
    "Loaded",
    "Pipeline",
    "PutBack",
    "ShredStarted",
    "Shredded",
    "ShreddedAgain",
    "Stop",
    "Waiting",
]
