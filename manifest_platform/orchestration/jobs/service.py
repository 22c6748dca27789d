"""The contract of a service that runs jobs: a plug-in of the group `manifest_platform.job_services` for a place of Spark.

Belongs here: the contract, the errors of job runs, and the service's client as dagster-aws uses it: it can be interrupted, and
survives outages. A plug-in starts, watches and cancels a job run with a Pipes client of dagster-aws, which takes two seconds to
import: modules of plug-ins are loaded only by a run that needs them.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING, Any, ClassVar

import dagster as dg
from dagster._core.errors import DagsterExecutionInterruptedError

from manifest_platform import aws
from manifest_platform.faults import Permanent, Transient

if TYPE_CHECKING:
    from dagster._core.pipes.client import PipesMessageReader

POLL_S = 5.0
"""Seconds between two looks at a job run."""
PATIENCE_S = 600.0
"""Seconds for which the service may be out of reach while a job run goes on."""


class JobFailed(Permanent):
    """A job run could not be started, or failed. The message has the reason; `links` as those of JobStarted."""

    links: Mapping[str, Any] = {}


class JobUnavailable(Transient):
    """A job run could not be started or watched, or its driver met an outage. A later run may succeed without any change."""

    links: Mapping[str, Any] = {}


@dataclass(frozen=True)
class JobStarted:
    """A job run was started. `links`: metadata: its id, its page and its logs."""

    links: Mapping[str, Any]


class Calls:
    """A client of the service, as its Pipes client uses it: `get_job_run` waits for the end of the job run.

    Pipes clients of dagster-aws look at a job run in a loop. They end with any request that fails, and cannot be interrupted
    from another thread. Here, the second look waits for the end, looks again after an outage, and raises the interruption, on
    which a Pipes client cancels the job run. The first look returns at once, because Glue's Pipes client takes it before it is
    ready to cancel.
    """

    def __init__(
        self,
        client: Any,
        ended: Callable[[Mapping[str, Any]], bool],
        begun: Callable[[Mapping[str, Any]], None],
        poll_s: float = POLL_S,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._client, self._ended, self._begun = client, ended, begun
        self._poll_s, self._patience_s = poll_s, patience_s
        self._interrupted, self._looks = Event(), 0
        self.last: Mapping[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def interrupt(self) -> None:
        """Makes the next look at the job run raise the interruption."""
        self._interrupted.set()

    def start_job_run(self, **parameters: Any) -> Mapping[str, Any]:
        """Starts the job run."""
        answer = self._client.start_job_run(**parameters)
        self._begun(answer)
        return answer

    def get_job_run(self, **parameters: Any) -> Mapping[str, Any]:
        """Returns the job run: the first time as it is, then at its end."""
        self._looks += 1
        self.last = self._look(parameters)
        while self._looks > 1 and not self._ended(self.last):
            if self._interrupted.wait(self._poll_s):
                raise DagsterExecutionInterruptedError
            self.last = self._look(parameters)
        return self.last

    def _look(self, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the job run as it is. Looks again after an outage, as long as the patience lasts."""
        from botocore.exceptions import BotoCoreError, ClientError

        until = time.monotonic() + self._patience_s
        while True:
            try:
                return self._client.get_job_run(**parameters)
            except (BotoCoreError, ClientError) as error:
                if not passes(error) or time.monotonic() > until:
                    raise
                if self._interrupted.wait(self._poll_s):
                    raise DagsterExecutionInterruptedError from error


_PASSING = {
    *("Throttling", "ThrottlingException", "TooManyRequestsException", "OperationTimeoutException", "InternalServiceException"),
    *("InternalServerException", "ServiceUnavailable", "ConcurrentRunsExceededException", "ServiceQuotaExceededException"),
    *("ResourceNumberLimitExceededException", "ConflictException"),
}


def passes(error: Exception) -> bool:
    """True if a request that failed may succeed without any change: an outage, throttling, a limit of runs at the same time."""
    from botocore.exceptions import ClientError, HTTPClientError
    from botocore.exceptions import ConnectionError as NoConnection

    if isinstance(error, ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        return status >= 500 or error.response.get("Error", {}).get("Code") in _PASSING
    return isinstance(error, HTTPClientError | NoConnection)


class JobService(ABC):
    """A service that runs jobs, for a place of Spark.

    `title`: its name for people; `api`: for boto3. `over`: the states in which a job run has ended. `client`: the kind of its
    client. `settings`: the place's.
    """

    title: ClassVar[str]
    api: ClassVar[str]
    over: ClassVar[frozenset[str]]
    client: ClassVar[type[Calls]] = Calls

    def __init__(self, settings: Any) -> None:
        self.settings = settings

    def calls(self, begun: Callable[[Mapping[str, Any]], None]) -> Calls:
        """Returns the service's client. `begun` is called with the answer to the start of a job run."""
        client = aws.client(self.api, region=self.settings.region)
        return self.client(client, self.is_over, begun)

    def run(
        self,
        context: dg.OpExecutionContext | dg.AssetExecutionContext,
        calls: Calls,
        reader: PipesMessageReader,
        extras: dict[str, Any],
    ) -> None:
        """Starts a job run with the extras, and returns once it has succeeded. Raises what the Pipes client raises."""
        parameters = self.settings.parameters()
        self.pipes(calls, reader).run(context=context, start_job_run_params=parameters, extras=extras)

    def is_over(self, answer: Mapping[str, Any]) -> bool:
        """True if a job run has ended, by an answer to `get_job_run`."""
        return self.state(answer)[0] in self.over

    def said(self, last: Mapping[str, Any]) -> str:
        """Returns the state of a job run, with the service's own words on it."""
        return ": ".join(filter(None, self.state(last)))

    @abstractmethod
    def pipes(self, calls: Calls, reader: PipesMessageReader) -> Any:
        """Returns the Pipes client of dagster-aws for the service."""

    @abstractmethod
    def state(self, answer: Mapping[str, Any]) -> tuple[str, str | None]:
        """Returns the state of a job run, and the service's own words on it, of an answer to `get_job_run`."""

    @abstractmethod
    def links(self, started: Mapping[str, Any], region: str) -> dict[str, Any]:
        """Returns the metadata of a started job run: its id, and links to its page and logs, without secrets."""
