"""Opens Spark sessions, and watches and cancels their jobs.

Belongs here: the contract of a place where Spark computes (`place`) and the places (`places/`). A session has its driver in
this process (`classic`, with its Java in `gateway`), or on a Spark Connect server (`client`). Also its properties and jars, the
wait for a cluster's workers (`workers`), and the progress (`watching`) and cancellation of its jobs.
Not here: the Spark jobs themselves (`shred`, `merging`).
"""

from manifest_platform.spark.cancellation import cancellable
from manifest_platform.spark.errors import SparkUnavailable
from manifest_platform.spark.jobs import enter_job
from manifest_platform.spark.place import AnyPlace, Place, end
from manifest_platform.spark.properties import properties, s3_endpoint
from manifest_platform.spark.sessions import session
from manifest_platform.spark.watching import watched

__all__ = [
    "AnyPlace",
    "Place",
    "SparkUnavailable",
    "cancellable",
    "end",
    "enter_job",
    "properties",
    "s3_endpoint",
    "session",
    "watched",
]
