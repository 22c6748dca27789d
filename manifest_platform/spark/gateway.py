"""Starts Spark's Java process, and forwards its stderr, except for notes that users do not need."""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Mapping

_NOTE = re.compile(rb"WARNING: Using incubator modules: ")
"""Java prints this note for each program that uses its vector instructions, as Spark does."""


def launch(settings: Mapping[str, object]) -> None:
    """Starts Java for a classic session (without Spark Connect), unless this process has started it. The next session uses it.

    Raises the errors that a session raises when it starts Java.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    _leave_out_interrupts()
    if SparkContext._gateway or "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    conf = SparkConf(loadDefaults=False).setAll([(name, str(value)) for name, value in settings.items()])
    reading, writing = os.pipe()
    passing = threading.Thread(target=pass_on, args=(reading, 2), name="stderr of Spark", daemon=True)
    passing.start()
    try:
        gateway = launch_gateway(conf, {"stderr": writing})
    except BaseException:
        os.close(writing)
        passing.join(2)  # its output appears before the error
        raise
    os.close(writing)
    SparkContext._ensure_initialized(gateway=gateway)


def forget_dead() -> None:
    """Forgets the session if its Java, or Spark in it, has ended, so that a process that stays may start another.

    Spark ends when its cluster gives the application up, as after ten executors in a row that failed. PySpark keeps such a
    session permanently, and each call of it fails.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    java = getattr(SparkContext._gateway, "proc", None)
    if java is not None and java.poll() is not None:
        SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
        SparkSession._instantiatedSession = None
        return
    context = SparkContext._active_spark_context
    if context is not None and context._jsc is not None and context._jsc.sc().isStopped():
        context.stop()
        SparkSession._instantiatedSession = None


def pass_on(reading: int, writing: int) -> None:
    """Copies lines from one file descriptor to another until the end, without these notes."""
    with open(reading, "rb") as lines:
        for line in lines:
            if not _NOTE.match(line):
                os.write(writing, line)


def _leave_out_interrupts() -> None:
    """Suppresses py4j's traceback of an interrupt, which it logs to Python's root logger."""
    root = logging.getLogger()
    if _is_no_interrupt not in root.filters:
        root.addFilter(_is_no_interrupt)


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    return record.msg != "KeyboardInterrupt while sending command."
