"""Notices of writes to a table, by its stream: each open shard is asked four times a second whether it has records.

What the records say is not read. Without a stream there are no notices; `store check` tells how to switch it on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from manifest_platform.manifest.store import StoreRejected
from manifest_platform.manifest.stores.dynamodb.client import Address, open_client
from manifest_platform.notices import Notices

POLL_SECONDS = 0.25
"""The pause of AWS's Lambda, too. Two processes may ask a shard so often; AWS throttles a third."""
SHARDS_SECONDS = 60.0
"""The seconds between two looks for new shards. The end of a shard leads to one, too."""


class StreamNotices(Notices):
    """The notices of a table's stream."""

    def __init__(self, address: Address) -> None:
        self.place = f"the stream of {address}"
        self._address = address
        self._ended = threading.Event()

    def watch(self, tell: Callable[[], object]) -> None:
        """Asks the shards until `close`. Raises StoreRejected without a stream, and errors of botocore."""
        table = open_client(self._address).describe_table(TableName=self._address.table)["Table"]
        if not (arn := table.get("LatestStreamArn")):
            raise StoreRejected(f"{self._address} has no stream")
        client = open_client(self._address, "dynamodbstreams")
        known: dict[str, str | None] = {}  # the next iterator of each shard; None after its end
        self._look_for_shards(client, arn, known, "LATEST")
        tell()
        rounds = 0
        while not self._ended.wait(POLL_SECONDS):
            rounds += 1
            if self._ask(client, known):
                tell()
            if rounds * POLL_SECONDS % SHARDS_SECONDS == 0 or not any(known.values()):
                self._look_for_shards(client, arn, known, "TRIM_HORIZON")

    def _ask(self, client: Any, known: dict[str, str | None]) -> bool:
        """Reads every open shard to its end. True if there were records."""
        found = False
        for shard, iterator in known.items():
            if iterator:
                answer = client.get_records(ShardIterator=iterator, Limit=1000)
                known[shard] = answer.get("NextShardIterator")
                found = found or bool(answer["Records"])
        return found

    def _look_for_shards(self, client: Any, arn: str, known: dict[str, str | None], begin: str) -> None:
        """Begins to read the shards that are not known yet, at their ends (`begin` is LATEST) or at their beginnings."""
        start: dict[str, str] = {}
        while True:
            described = client.describe_stream(StreamArn=arn, **start)["StreamDescription"]
            for shard in described["Shards"]:
                name = shard["ShardId"]
                if name not in known:
                    ended = begin == "LATEST" and "EndingSequenceNumber" in shard["SequenceNumberRange"]
                    known[name] = None if ended else self._begun(client, arn, name, begin)
            if not (last := described.get("LastEvaluatedShardId")):
                return
            start = {"ExclusiveStartShardId": last}

    def _begun(self, client: Any, arn: str, shard: str, begin: str) -> str:
        return client.get_shard_iterator(StreamArn=arn, ShardId=shard, ShardIteratorType=begin)["ShardIterator"]

    def close(self) -> None:
        """Ends the asking."""
        self._ended.set()
