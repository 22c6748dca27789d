"""The code location, whose Spark jobs run in the process of the run, so that a run begins to work at once."""

from manifest_platform.definitions import defs
from manifest_platform_tests.pipeline.following import sessions_here

__all__ = ["defs"]
sessions_here()
