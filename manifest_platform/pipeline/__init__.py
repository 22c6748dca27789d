"""The way of a dataset from landing to warehouse, as the manifest decides: the engine of the command line and of Dagster.

Exported here: a dataset's pipeline, and the events and reports on it. Import the work itself from its own module, such as
`drain`. So a program that only asks for the state imports neither the warehouse nor the shredding. What the command line and
Dagster offer on top of this is in `operations`.
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
