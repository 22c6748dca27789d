"""Opens Spark sessions, and watches and cancels their jobs.

Belongs here: the session and its settings (`sessions`), its Java process (`gateway`), its jars (`jars`), the wait for a
cluster's workers (`workers`), and the progress (`watching`) and cancellation of its jobs. A session may be local, on a cluster
or on a Spark Connect server.
Not here: the Spark jobs themselves (`shred`, `merging`).
"""

from manifest_platform.spark.cancellation import cancellable
from manifest_platform.spark.errors import SparkUnavailable
from manifest_platform.spark.sessions import properties, s3_endpoint, session
from manifest_platform.spark.watching import watched

__all__ = ["SparkUnavailable", "cancellable", "properties", "s3_endpoint", "session", "watched"]
