"""Spark sessions: how one is opened, for each place to run. What Spark is used for does not belong here."""

from manifest_platform.spark.sessions import SparkUnavailable, cancellable, properties, s3_endpoint, session
from manifest_platform.spark.watching import watched

__all__ = ["SparkUnavailable", "cancellable", "properties", "s3_endpoint", "session", "watched"]
