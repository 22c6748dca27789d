"""Spark sessions: opening a session for each place to run, its jars, its progress and its cancellation.

Not here: the Spark jobs (`shred`, `merging`).
"""

from manifest_platform.spark.sessions import SparkUnavailable, cancellable, properties, s3_endpoint, session
from manifest_platform.spark.watching import watched

__all__ = ["SparkUnavailable", "cancellable", "properties", "s3_endpoint", "session", "watched"]
