"""The errors of a Spark that cannot work."""

from manifest_platform.faults import Misconfigured, Transient


class SparkUnavailable(RuntimeError):
    """Spark cannot be started, or runs no task. The message says what is missing and what to do."""


class SparkMisconfigured(SparkUnavailable, Misconfigured):
    """Spark cannot be started until a person changes the configuration or a permission."""


class SparkOutage(SparkUnavailable, Transient):
    """Spark cannot be started now: its service is out of reach, or has no capacity. A later attempt may succeed."""
