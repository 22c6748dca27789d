"""Opens Spark sessions, and watches and cancels their jobs.

Belongs here: the session and its settings (`sessions`), its Java process (`gateway`), its jars (`jars`), and the progress of
its jobs (`watching`). A session may be local, on a cluster or on a Spark Connect server.
Not here: the Spark jobs themselves (`shred`, `merging`).
"""

from manifest_platform.spark.sessions import SparkUnavailable, cancellable, properties, s3_endpoint, session
from manifest_platform.spark.watching import watched

__all__ = ["SparkUnavailable", "cancellable", "properties", "s3_endpoint", "session", "watched"]
