"""The work on a dataset's items from landing to warehouse, in the order that the manifest decides.

Belongs here: discovery, shredding, loading, full loads and merging; the drain, which combines them; and the work of users' own
programs. Each is a module of functions on a Pipeline.

Does not belong here: what may happen next (`manifest`); answers and repairs for operators, such as explain and the doctor
(`operations`); the rules of merging (`merging`); the tables (`warehouse`).

This module exports only the pipeline, its events and its reports. Import the work from its own module, such as `drain`, so that
a program that only asks for the state imports neither the warehouse nor Spark.
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
