"""Datasets from landing to warehouse, as the manifest decides: the engine below the command line and Dagster alike."""

from manifest_platform.pipeline.chosen import OutOfOrder, check_order, load_chosen, shred_chosen
from manifest_platform.pipeline.drain import drain
from manifest_platform.pipeline.events import (
    Budget,
    DiscoveryReport,
    DrainReport,
    Event,
    FeedEnd,
    ItemFailed,
    Loaded,
    Shredded,
    ShredStarted,
    Stop,
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
    "OutOfOrder",
    "Pipeline",
    "ShredStarted",
    "Shredded",
    "Stop",
    "check_order",
    "drain",
    "load_chosen",
    "shred_chosen",
]
