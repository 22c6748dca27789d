"""Sessions of a Spark Connect server, whose client this process is: it needs no Java, and has no SparkContext.

Belongs here: opening a session by the address of a server, or by the channels of a place that signs its requests; replacing a
session that its server has lost; releasing it.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manifest_platform import extras, progress
from manifest_platform.spark.errors import SparkUnavailable
from manifest_platform.spark.place import PYTHON_OF_ARCHIVE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.client import DefaultChannelBuilder

log = logging.getLogger(__name__)

CONNECT_S = 30.0
"""Seconds until a Spark Connect server must answer. Spark's own client would try for ten minutes."""
_RELEASE_S = 5.0
_PYTHON_OF_WORKERS = "spark.sql.execution.pyspark.python"
_CONNECT_MODE = "SPARK_CONNECT_MODE_ENABLED"
"""The variable by which PySpark's functions know that a session is one of Spark Connect."""


@dataclass(frozen=True)
class _Opened:
    """The process's session, and the server that it belongs to. `mode`: the value of `_CONNECT_MODE` before it."""

    server: str
    session: Any
    channels: DefaultChannelBuilder
    mode: str | None = None


_opened: list[_Opened] = []
_lock = threading.RLock()


def channels_to(remote: str, conf_file: str | Path) -> DefaultChannelBuilder:
    """Returns what makes connections to a server, by its address `sc://HOST:PORT`. Raises SparkUnavailable."""
    extras.need("pyspark")
    from pyspark.errors import PySparkException

    try:
        import grpc  # noqa: F401 - PySpark may have imported its own modules without it
        from pyspark.sql.connect.client import DefaultChannelBuilder

        return DefaultChannelBuilder(remote)
    except ImportError as error:
        raise SparkUnavailable(
            f"{conf_file}: spark.remote needs the client of Spark Connect: pip install 'manifest-platform[connect]' ({error})"
        ) from error
    except PySparkException as error:
        raise SparkUnavailable(f"{conf_file}: spark.remote must be sc://HOST:PORT: {error}") from error


def opened(
    channels: DefaultChannelBuilder, server: str, settings: Mapping[str, object], advice: str, archive: str = ""
) -> SparkSession:
    """Returns the process's session on a server. A session on another server, or that the server has lost, is replaced.

    `server`: its name, for messages. `advice`: what to do if it does not answer. `archive`: what its workers get, with the
    folder that they unpack it into. Raises SparkUnavailable.
    """
    with _lock, progress.work("starting Spark"):
        _reach(channels, server, advice)
        if _opened and (found := _opened[0]).server == server:
            with contextlib.suppress(Exception):  # whatever its server answers, another session may work
                return _set(found.session, settings)
        _forget()
        return _made(channels, server, settings, archive)


def end() -> None:
    """Releases the process's session on its server, which frees what it holds there. Raises nothing."""
    with _lock, contextlib.suppress(Exception):
        if _opened:
            found = _opened[0]
            alive = _answers(found.channels, _RELEASE_S)  # Spark's client would try for ten minutes
            _forget(release=alive)


def _made(channels: DefaultChannelBuilder, server: str, settings: Mapping[str, object], archive: str) -> SparkSession:
    from pyspark.errors import PySparkException
    from pyspark.sql.connect.session import SparkSession as RemoteSession

    from manifest_platform.spark.patience import Patience

    before = os.environ.get(_CONNECT_MODE)
    os.environ[_CONNECT_MODE] = "1"
    try:
        session: Any = RemoteSession.builder.channelBuilder(channels).create()
        _opened[:] = [_Opened(server, session, channels, before)]
        atexit.unregister(end)
        atexit.register(end)  # before the client's own hook, which does nothing for a session that is closed
        session.client.set_retry_policies([Patience()])
        if archive:
            with progress.work("sending spark.package"):
                session.addArtifacts(archive, archive=True)
            session.conf.set(_PYTHON_OF_WORKERS, PYTHON_OF_ARCHIVE)
        return _set(session, settings)
    except (PySparkException, OSError) as error:
        if not _opened:
            _restore_mode(before)
        reason = str(error).partition("\n\tat ")[0]
        raise SparkUnavailable(f"the Spark Connect server at {server} opens no session: {reason}; see its log") from error


def _set(session: Any, settings: Mapping[str, object]) -> SparkSession:
    """Sets the properties of a session, which its server must still have."""
    from pyspark.errors import PySparkException

    from manifest_platform.spark.patience import Patience

    session.client.set_retry_policies([Patience()])
    session.conf.get("spark.sql.session.timeZone")  # raises if the server no longer has the session
    for name, value in settings.items():
        try:
            session.conf.set(name, value)
        except PySparkException as error:
            told = str(error).partition("\n")[0]
            log.warning("%s is no property of a session, so set it where the server is started: %s", name, told)
    return session


def _forget(release: bool = False) -> None:
    """Closes the process's session, and makes PySpark forget it. `release`: tells its server.

    A session in this process may follow, whose functions PySpark would send to a server if the variable stayed.
    """
    while _opened:
        found = _opened.pop()
        try:
            found.session.release_session_on_close = release
            found.session.stop()
        finally:
            _restore_mode(found.mode)


def _restore_mode(before: str | None) -> None:
    if before is None:
        os.environ.pop(_CONNECT_MODE, None)
    else:
        os.environ[_CONNECT_MODE] = before


def _reach(channels: DefaultChannelBuilder, server: str, advice: str) -> None:
    """Raises SparkUnavailable if no Spark Connect server answers."""
    if not _answers(channels, CONNECT_S):
        raise SparkUnavailable(f"no Spark Connect server answers at {server} within {CONNECT_S:g} s; {advice}")


def _answers(channels: DefaultChannelBuilder, seconds: float) -> bool:
    import grpc

    with channels.toChannel() as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=seconds)
        except grpc.FutureTimeoutError:
            return False
    return True
