"""The error of a Spark that cannot work."""


class SparkUnavailable(RuntimeError):
    """Spark cannot be started, or runs no task. The message says what is missing and what to do."""
