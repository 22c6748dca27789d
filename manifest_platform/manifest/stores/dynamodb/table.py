"""The DynamoDB table of a manifest: its creation, and its differences from the required settings.

Belongs here: the table's settings, written once for creation and check. The rows in the table are in `store`.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from typing import Any

from manifest_platform.manifest.store import Difference, StoreUnavailable
from manifest_platform.manifest.stores.dynamodb.client import EXPIRES, Address, failure, open_client

WAIT_S = 120
"""The most seconds until a table is active, and until its backups can be set."""
POLL_S = 0.5

_KEYS = {"partition": "HASH", "sort": "RANGE"}
_STREAM = {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}
_NOT_OFFERED = ("UnknownOperationException",)
"""The error codes of servers that imitate DynamoDB and lack an operation."""


def create_table(url: str, memory: bool = False) -> bool:
    """Creates the table of a `dynamodb://` URL with all its settings, and waits until it is active.

    Returns False if it existed. May be repeated, also after an interruption. An existing table keeps its settings, except
    point-in-time recovery and the expiry of rows, which can only be switched on when the table is active. Raises StoreRejected,
    StoreUnavailable. `memory`: True for a table whose rows expire, and that needs neither backups nor a stream.
    """
    table = _Table(Address.parse(url), memory)
    made = table.create()
    table.wait_until_active()
    if memory:
        table.let_expire()
    else:
        table.keep_backups()
    return made


def check_table(url: str, memory: bool = False) -> list[Difference]:
    """The differences of the table of a `dynamodb://` URL from the required settings; empty if there are none.

    A setting that the server does not know is passed over, because an imitation of DynamoDB may lack some. Raises
    StoreRejected, StoreUnavailable.
    """
    return list(_Table(Address.parse(url), memory).differences())


class _Table:
    def __init__(self, address: Address, memory: bool):
        self.address, self._memory = address, memory
        self._client = open_client(address)

    def create(self) -> bool:
        answer = self._call(
            "create_table",
            ("ResourceInUseException",),
            KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind in _KEYS.items()],
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in _KEYS],
            BillingMode="PAY_PER_REQUEST",
            SSESpecification={"Enabled": True, "SSEType": "KMS"},
            **({} if self._memory else {"StreamSpecification": _STREAM, "DeletionProtectionEnabled": True}),
        )
        return answer is not None

    def let_expire(self) -> None:
        """Lets DynamoDB remove rows after they expired."""
        if self._expiring() in (EXPIRES, None):
            return
        wanted = {"TimeToLiveSpecification": {"Enabled": True, "AttributeName": EXPIRES}}
        self._call("update_time_to_live", _NOT_OFFERED, **wanted)

    def wait_until_active(self) -> None:
        def is_active() -> bool:
            found = self._call("describe_table", ("ResourceNotFoundException",))  # a new table is not known immediately
            return found is not None and found["Table"]["TableStatus"] == "ACTIVE"

        self._wait(is_active, "the table is not active")

    def keep_backups(self) -> None:
        """Switches point-in-time recovery on, which a new table allows only after some time."""
        if self._backups() != "DISABLED":
            return
        wanted = {"PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True}}
        not_yet = ("ContinuousBackupsUnavailableException",)
        self._wait(
            lambda: self._call("update_continuous_backups", not_yet, **wanted) is not None,
            "point-in-time recovery cannot be switched on",
        )

    def differences(self) -> Iterator[Difference]:
        described = self._call("describe_table") or {}
        table = described["Table"]
        keys = {key["AttributeName"]: key["KeyType"] for key in table["KeySchema"]}
        types = {one["AttributeName"]: one["AttributeType"] for one in table["AttributeDefinitions"]}
        if keys != _KEYS or any(types[name] != "S" for name in _KEYS):
            found = ", ".join(f"{name} {types[name]} {kind}" for name, kind in keys.items())
            anew = "name another table in manifest.store, and create it; keys cannot change"
            yield Difference("keys", "partition S HASH, sort S RANGE", found, anew)
        billing = table.get("BillingModeSummary", {}).get("BillingMode", "PROVISIONED")
        if billing != "PAY_PER_REQUEST":
            yield Difference("billing", "PAY_PER_REQUEST", billing, self._update("--billing-mode PAY_PER_REQUEST"))
        encryption = table.get("SSEDescription", {})
        if encryption.get("Status") not in ("ENABLED", "ENABLING", "UPDATING") and not self._is_imitation:
            found = encryption.get("Status", "with a key that AWS owns, without a trail")
            yield Difference(
                "encryption", "with a KMS key", found, self._update("--sse-specification Enabled=true,SSEType=KMS")
            )
        if self._memory:
            yield from self._expiry()
            return
        if not table.get("DeletionProtectionEnabled"):
            yield Difference("deletion protection", "on", "off", self._update("--deletion-protection-enabled"))
        stream = table.get("StreamSpecification", {})
        images = stream.get("StreamViewType", "off") if stream.get("StreamEnabled") else "off"
        if images != "NEW_AND_OLD_IMAGES":
            wanted = "--stream-specification StreamEnabled=true,StreamViewType=NEW_AND_OLD_IMAGES"
            mend = (
                self._update(wanted)
                if images == "off"
                else f"{self._update('--stream-specification StreamEnabled=false')}, then {wanted}"
            )
            yield Difference("stream", "NEW_AND_OLD_IMAGES", images, mend)
        if self._backups() == "DISABLED":
            mend = "update-continuous-backups --point-in-time-recovery-specification PointInTimeRecoveryEnabled=true"
            yield Difference("point-in-time recovery", "on", "off", self._aws(mend))
        yield from self._expiry()

    def _expiry(self) -> Iterator[Difference]:
        """Yields the difference of the expiry of rows: by EXPIRES in a memory, never in a manifest."""
        name, wanted = self._expiring(), EXPIRES if self._memory else ""
        if name is None or name == wanted:
            return
        mend = "update-time-to-live --time-to-live-specification Enabled={},AttributeName={}"
        steps = [mend.format("false", name)] if name else []
        steps += [mend.format("true", wanted)] if wanted else []
        expected = f"by {wanted}" if wanted else "off: the manifest never forgets automatically"
        found = f"by {name}" if name else "off"
        yield Difference("time to live", expected, found, ", then ".join(map(self._aws, steps)))

    def _expiring(self) -> str | None:
        """The attribute by which rows expire; empty if they do not; None if the server has no expiry."""
        answer = self._call("describe_time_to_live", _NOT_OFFERED)
        if answer is None:
            return None
        found = answer.get("TimeToLiveDescription", {})
        is_off = found.get("TimeToLiveStatus", "DISABLED") in ("DISABLED", "DISABLING")
        return "" if is_off else found.get("AttributeName", "?")

    @property
    def _is_imitation(self) -> bool:
        """True if the server lacks backups: then it is not DynamoDB itself, and may lack other settings."""
        return self._backups() is None

    def _backups(self) -> str | None:
        """ENABLED or DISABLED; None if the server has no backups."""
        found = self._call("describe_continuous_backups", _NOT_OFFERED)
        if found is None:
            return None
        return (
            found["ContinuousBackupsDescription"]
            .get("PointInTimeRecoveryDescription", {})
            .get("PointInTimeRecoveryStatus", "DISABLED")
        )

    def _update(self, options: str) -> str:
        return self._aws(f"update-table {options}")

    def _aws(self, command: str) -> str:
        """A command of the AWS command line on this table."""
        name, _, options = command.partition(" ")
        region = f" --region {self.address.region}" if self.address.region else ""
        endpoint = f" --endpoint-url {shlex.quote(self.address.endpoint)}" if self.address.endpoint else ""
        return f"aws dynamodb {name} --table-name {self.address.table} {options}{region}{endpoint}"

    def _wait(self, done: Any, problem: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while not done():
            if time.monotonic() >= deadline:
                raise StoreUnavailable(f"{self.address}: {problem} after {WAIT_S} s; repeat the command")
            time.sleep(POLL_S)

    def _call(self, operation: str, expected: tuple[str, ...] = (), **parameters: Any) -> dict | None:
        """The answer of a call; None for an expected error."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return getattr(self._client, operation)(TableName=self.address.table, **parameters)
        except ClientError as error:
            if error.response["Error"]["Code"] in expected:
                return None
            raise failure(self.address, error) from error
        except BotoCoreError as error:
            raise failure(self.address, error) from error
