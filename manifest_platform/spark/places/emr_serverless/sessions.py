"""The session of this process in EMR Serverless: started, looked at, ended.

A process has one session. It is ended when the process ends, too; EMR ends what a killed process leaves.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from manifest_platform import aws, progress
from manifest_platform.quantities import duration
from manifest_platform.spark.errors import SparkMisconfigured, SparkOutage, SparkUnavailable

if TYPE_CHECKING:
    from manifest_platform.spark.places.emr_serverless.tokens import Channels, Token

log = logging.getLogger(__name__)

_POLL_S = 2.0
_STARTING, _LIVE = {"SUBMITTED", "STARTING"}, {"STARTED", "IDLE", "BUSY"}
_LOCAL = ("127.0.0.1", "localhost")
_UNKNOWN = "ResourceNotFoundException"
_PASSING = {"ConflictException", "ServiceQuotaExceededException", "ThrottlingException", "TooManyRequestsException"}


class _Gone(SparkMisconfigured):
    """EMR does not know a session."""


@dataclass(frozen=True)
class Asked:
    """The parameters of a session."""

    application: str
    role: str
    region: str | None
    idle_minutes: int
    properties: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Session:
    """A session that was started."""

    asked: Asked
    id: str

    @property
    def name(self) -> str:
        """Its name, for messages."""
        return f"EMR Serverless, session {self.id} of application {self.asked.application}"

    @property
    def shown_by(self) -> str:
        """The command that shows its state."""
        place = f"--application-id {self.asked.application} --session-id {self.id}"
        region = f"--region {self.asked.region} " if self.asked.region else ""
        return f"aws emr-serverless get-session {region}{place}"

    def channels(self) -> Channels:
        """Returns what makes connections to its endpoint. Raises SparkUnavailable."""
        from manifest_platform.spark.places.emr_serverless.tokens import Channels, Tokens

        place, token = self._endpoint()
        return Channels(_remote(place), Tokens(token, lambda: self._endpoint()[1]))

    def _endpoint(self) -> tuple[str, Token]:
        from manifest_platform.spark.places.emr_serverless.tokens import Token

        answer = _call(self.asked, "get_session_endpoint", sessionId=self.id)
        return answer["endpoint"], Token.of(answer["authToken"], answer["authTokenExpiresAt"])


_current: list[Session] = []
_lock = threading.RLock()


def started(asked: Asked, seconds: float) -> Session:
    """Returns the process's session. Starts one if there is none that lives, and waits until it has started.

    Raises SparkUnavailable if it has not started within `seconds`; then it is ended.
    """
    with _lock:
        if _current and _current[0].asked == asked and _lives(_current[0]):
            return _current[0]
        end()
        session = _begun(asked)
        _current[:] = [session]
        try:
            with progress.work(f"starting a session of EMR Serverless ({session.id})"):
                _await(session, seconds)
        except BaseException:
            end()
            raise
        return session


@atexit.register
def end() -> None:
    """Ends the process's session, if there is one. Raises nothing."""
    with _lock:
        while _current:
            session = _current.pop()
            try:
                _call(session.asked, "terminate_session", sessionId=session.id)
            except _Gone:
                continue
            except Exception as error:
                told = "%s is not ended now (%s); EMR ends it after %d idle minutes"
                log.warning(told, session.name, error, session.asked.idle_minutes)


def _begun(asked: Asked) -> Session:
    properties = {"classification": "spark-defaults", "properties": dict(asked.properties)}
    answer = _call(
        asked,
        "start_session",
        clientToken=str(uuid.uuid4()),  # a repeat of a request that got no answer starts no second session
        executionRoleArn=asked.role,
        configurationOverrides={"runtimeConfiguration": [properties]},
        idleTimeoutMinutes=asked.idle_minutes,
        name="manifest_platform",
    )
    return Session(asked, answer["sessionId"])


def _await(session: Session, seconds: float) -> None:
    until = time.monotonic() + seconds
    while (found := _state(session))["state"] not in _LIVE:
        state, details = found["state"], found.get("stateDetails") or "no reason is named"
        if state not in _STARTING:
            raise SparkUnavailable(f"{session.name} does not start: {state}: {details}; {session.shown_by} shows more")
        if time.monotonic() > until:
            raise SparkOutage(
                f"{session.name} has not started within {duration(seconds)}: {state}: {details}. EMR may lack capacity, or the"
                " application's limits are too low for what spark.conf asks for: raise them, ask for less, or raise"
                " spark.start_timeout_seconds"
            )
        time.sleep(min(_POLL_S, max(0.0, until - time.monotonic()) + 0.01))


def _lives(session: Session) -> bool:
    """True unless a session has ended. EMR forgets a session some time after its end."""
    try:
        return _state(session)["state"] in _LIVE
    except _Gone:
        return False


def _state(session: Session) -> dict[str, Any]:
    return _call(session.asked, "get_session", sessionId=session.id)["session"]


def _call(asked: Asked, call: str, /, **parameters: Any) -> dict[str, Any]:
    """Returns the answer to a request. Raises SparkOutage if it may succeed later, SparkMisconfigured otherwise."""
    from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
    from botocore.exceptions import ConnectionError as NoConnection

    action = "".join(word.capitalize() for word in call.split("_"))
    said = f"EMR Serverless, application {asked.application}: {action}"
    try:
        return getattr(aws.client("emr-serverless", region=asked.region), call)(applicationId=asked.application, **parameters)
    except ClientError as error:
        status, code = error.response["ResponseMetadata"]["HTTPStatusCode"], error.response["Error"]["Code"]
        if status >= 500 or code in _PASSING:
            raise SparkOutage(f"{said} is refused now: {error}; the next drain tries again") from error
        advice = "check spark.application, spark.role and spark.region, that the release is emr-7.13 or later with interactive"
        calls = "StartSession, GetSession, GetSessionEndpoint and TerminateSession, and iam:PassRole"
        kind = _Gone if code == _UNKNOWN and "sessionId" in parameters else SparkMisconfigured
        raise kind(f"{said} is refused: {error}; {advice} sessions enabled, and that this role may call {calls}") from error
    except (HTTPClientError, NoConnection) as error:
        raise SparkOutage(f"{said} gets no answer: {error}; the next drain tries again") from error
    except (BotoCoreError, ValueError) as error:
        raise SparkMisconfigured(f"{said} is not possible: {error}; give spark.region and credentials") from error


def _remote(endpoint: str) -> str:
    """Returns the address of an endpoint for Spark Connect. Its connection is encrypted, because requests carry the token."""
    place = urlsplit(endpoint if "://" in endpoint else f"https://{endpoint}")
    if place.scheme == "http" and place.hostname in _LOCAL:
        return f"sc://{place.hostname}:{place.port}"
    return f"sc://{place.hostname}:{place.port or 443}/;use_ssl=true"
