"""The health of a follower, for supervisors and monitoring: an answer over HTTP, without secrets and without passwords."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import StrEnum
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from manifest_platform.manifest import Refused
from manifest_platform.masking import masked_within

PATH = "/healthz"


class Doing(StrEnum):
    """The present work of a follower. `standby`: another follower works on the dataset. `unavailable`: an outage."""

    STARTING = "starting"
    STANDBY = "standby"
    IDLE = "idle"
    WORKING = "working"
    UNAVAILABLE = "unavailable"


@dataclass
class Health:
    """The state of a follower's work on a dataset, for anybody who asks. Times are UTC.

    `item`: the newest that it loaded, and when. `blocked`: the reason by feed. `unavailable`: the reason of an outage.
    `requests`: to the manifest's store, since the follower began. `heard`: the time when the turn in progress last told
    something, by the monotonic clock; None between turns. `limit`: the most seconds that it may say nothing.
    """

    dataset: str
    doing: Doing = Doing.STARTING
    looked_at: datetime | None = None
    listed_at: datetime | None = None
    item: str | None = None
    item_at: datetime | None = None
    blocked: dict[str, str] = field(default_factory=dict)
    unavailable: str = ""
    requests: int = 0
    heard: float | None = None
    limit: float = math.inf

    @property
    def silent_seconds(self) -> float | None:
        """The seconds for which the turn in progress has told nothing; None between turns."""
        heard = self.heard
        return None if heard is None else time.monotonic() - heard

    @property
    def hangs(self) -> bool:
        """True if a turn has told nothing for longer than its limit."""
        return (self.silent_seconds or 0) > self.limit

    def told(self) -> dict[str, Any]:
        """Returns what is answered: without the numbers that only this process understands."""
        silent = self.silent_seconds
        answer = {**asdict(self), "silent_seconds": None if silent is None else round(silent, 1)}
        return {name: value for name, value in answer.items() if name not in ("heard", "limit")}


def _document(healths: Sequence[Health]) -> dict[str, Any]:
    """Returns the answer: the datasets by name, times as ISO 8601."""
    plain = json.dumps({"datasets": {one.dataset: one.told() for one in healths}}, default=datetime.isoformat)
    return masked_within(json.loads(plain))


@contextmanager
def answering(address: str | None, healths: Callable[[], Sequence[Health]]) -> Generator[str]:
    """Answers GET /healthz at `host:port` with the health of each dataset, from a thread. Yields the address.

    The status is 503 while a turn hangs, otherwise 200.
    None: answers nothing, and yields an empty address. The port 0 means any. Raises Refused if it cannot listen there.
    """
    if address is None:
        yield ""
        return
    host, _, port = address.rpartition(":")

    class Handler(BaseHTTPRequestHandler):
        timeout = 10

        def do_GET(self) -> None:
            is_asked = self.path.partition("?")[0] == PATH
            body = json.dumps(_document(healths()) if is_asked else {"error": f"ask for {PATH}"}).encode()
            well = HTTPStatus.SERVICE_UNAVAILABLE if any(one.hangs for one in healths()) else HTTPStatus.OK
            self.send_response(well if is_asked else HTTPStatus.NOT_FOUND)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
            del format, args

    try:
        server = ThreadingHTTPServer((host, int(port)), Handler)
    except (OSError, OverflowError) as error:
        raise Refused(f"follow.health: cannot listen on {address}: {error}") from error
    thread = threading.Thread(target=server.serve_forever, name="health", daemon=True)
    thread.start()
    try:
        yield f"{host}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
