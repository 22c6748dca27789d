"""Messages of a job run, which Dagster Pipes passes through S3. It imports dagster-aws: import it only where a run needs it."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from dagster._core.pipes.context import PipesMessageHandler
from dagster_aws.pipes import PipesS3MessageReader

_READ_EVERY_S = 1.0
_DELETED_AT_ONCE = 1000


class EventReader(PipesS3MessageReader):
    """Reads the messages of one job run, in their order, and hands over each custom message as soon as it arrives.

    Dagster's reader keeps custom messages until the job run is over, and reads a chunk a second: it loses what it has not read
    ten seconds after the end. This reader reads all there are. S3 may be out of reach meanwhile. At the end, it deletes them.
    """

    def __init__(self, bucket: str, prefix: str, client: Any, arrived: Callable[[dict[str, Any]], None]) -> None:
        super().__init__(bucket=bucket, client=client, interval=_READ_EVERY_S)
        self._prefix, self._arrived = prefix, arrived

    @contextmanager
    def get_params(self) -> Generator[dict[str, Any]]:
        """Yields the place of the messages."""
        place = f"{self._prefix}{uuid.uuid4()}"
        yield {"bucket": self.bucket, "key_prefix": place}
        read = [f"{place}/{index}.json" for index in range(1, self.counter)]
        for first in range(0, len(read), _DELETED_AT_ONCE):
            keys = [{"Key": key} for key in read[first : first + _DELETED_AT_ONCE]]
            with contextlib.suppress(BotoCoreError, ClientError):  # a rule of the bucket removes what stays
                self.client.delete_objects(Bucket=self.bucket, Delete={"Objects": keys, "Quiet": True})

    @contextmanager
    def read_messages(self, handler: PipesMessageHandler) -> Generator[Any]:
        """Reads messages in a thread until the job run is over, and everything that was written has been read."""
        telling: Any = _Telling(handler, self._arrived)
        with super().read_messages(telling) as place:
            yield place

    def messages_are_readable(self, params: Any) -> bool:
        """True: a message that is not there yet is asked for again."""
        return True

    def download_messages(self, cursor: Any, params: Any) -> tuple[int, str] | None:
        """Returns all chunks that are there."""
        chunks = []
        while found := super().download_messages(cursor, params):
            cursor, chunk = found
            chunks.append(chunk)
        return (cursor, "\n".join(chunks)) if chunks else None

    def download_messages_chunk(self, index: int, params: Any) -> str | None:
        """Returns a chunk; None if it is not there, or S3 is out of reach."""
        try:
            return super().download_messages_chunk(index, params)
        except BotoCoreError:
            return None


class _Telling:
    """A handler of messages that hands over custom messages as they arrive, and leaves the others to Dagster's."""

    def __init__(self, handler: PipesMessageHandler, arrived: Callable[[dict[str, Any]], None]) -> None:
        self._handler, self._arrived = handler, arrived

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handler, name)

    def handle_message(self, message: Any) -> None:
        """Handles a message."""
        if message["method"] == "report_custom_message":
            self._arrived(message["params"]["payload"])
        else:
            self._handler.handle_message(message)
