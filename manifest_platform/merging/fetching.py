"""Copies objects from S3 to the local disk, with one request for each small object.

Belongs here: the requests, and the classification of their errors. Arrow's own client asks for an object's size before it
reads the object, which doubles the number of requests for small objects.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
from botocore.exceptions import BotoCoreError, ClientError
from urllib3.exceptions import HTTPError

from manifest_platform import aws
from manifest_platform.merging.errors import ChangedInput, PermanentMergeError, TransientMergeError
from manifest_platform.merging.inputs import Input, check_size, missing

PIECE = 32 << 20
"""Largest number of bytes that one request reads. An object up to this size costs one request."""

SMALL = 256 << 10
"""Number of bytes that are read rather than left out at the cost of a further request."""

MOST_BYTES = 256 << 20
MOST_REQUESTS = aws.CONNECTIONS
"""Limits of the bytes and of the requests that are in flight together."""

_TRANSIENT = ("SlowDown", "RequestTimeout", "Throttling", "ThrottlingException", "ExpiredToken", "InvalidToken")
_DENIED = (401, 403)


def fetched(inputs: Sequence[Input], spool: Path) -> list[pa.Buffer]:
    """Copies the objects to one file in the directory `spool` and returns the bytes of each, memory-mapped, in input order.

    Of a file of which only some row groups are merged, only these and the footer are read. The other bytes are zeros, which
    take no space on the disk. Many requests run concurrently, up to MOST_REQUESTS requests and MOST_BYTES bytes.
    Raises MissingInput, ChangedInput, PermanentMergeError or TransientMergeError.
    """
    starts = [0]
    for found in inputs:
        starts.append(starts[-1] + found.file_bytes)
    file = spool / "inputs"
    largest = max(1, min(PIECE, max(found.file_bytes for found in inputs)))
    with file.open("wb") as target, ThreadPoolExecutor(max(1, min(MOST_REQUESTS, MOST_BYTES // largest))) as pool:
        target.truncate(starts[-1])
        fetch = _fetcher(target.fileno())
        for _ in pool.map(lambda piece: fetch(*piece), _pieces(inputs, starts)):
            pass
    if not starts[-1]:
        return [pa.py_buffer(b"") for _ in inputs]
    with pa.memory_map(str(file)) as mapped:
        whole = mapped.read_buffer()
    return [whole.slice(start, found.file_bytes) for start, found in zip(starts, inputs, strict=False)]


def _pieces(inputs: Sequence[Input], starts: Sequence[int]) -> Iterator[tuple[Input, int, int, int]]:
    """Yields one request each: the input, the offset in it, the number of bytes, and the offset in the target file."""
    for found, start in zip(inputs, starts, strict=False):
        for begin, end in _needed(found):
            for offset in range(begin, end, PIECE):
                yield found, offset, min(PIECE, end - offset), start + offset


def _needed(input_: Input) -> list[tuple[int, int]]:
    """The bytes of a file to be read, as starts and ends. A gap that costs less than a request is read, too."""
    groups = input_.groups
    if groups is None or groups.size <= SMALL:
        return [(0, input_.file_bytes)]
    if groups.footer - groups.end <= SMALL:
        return [(groups.start, groups.size)]
    return [(groups.start, groups.end), (groups.footer, groups.size)]


def _fetcher(target: int) -> Callable[[Input, int, int, int], None]:
    def fetch(input_: Input, offset: int, size: int, to: int) -> None:
        try:
            data, whole = _got(_client(input_.uri), input_, offset, size)
        except ClientError as error:
            raise _refused(input_, error) from error
        except (BotoCoreError, HTTPError, OSError) as error:
            raise TransientMergeError(f"{input_.uri} could not be read: {type(error).__name__}: {error}") from error
        check_size(input_, whole)
        try:
            os.pwrite(target, data, to)
        except OSError as error:
            raise TransientMergeError(
                f"{input_.uri} could not be copied to the local disk: {error}; free some disk space"
            ) from error

    return fetch


def _client(uri: str) -> Any:
    try:
        return aws.s3(uri)
    except (BotoCoreError, ValueError) as error:
        raise TransientMergeError(
            f"the S3 client could not be created: {error}; check the AWS variables of the environment"
        ) from error


def _got(client: Any, input_: Input, offset: int, size: int) -> tuple[bytes, int]:
    """Returns a part of an object and the size of the whole object, both in bytes."""
    bucket, _, key = input_.uri.removeprefix("s3://").partition("/")
    if size == input_.file_bytes:
        answer = client.get_object(Bucket=bucket, Key=key)
        data = answer["Body"].read() if answer["ContentLength"] == size else b""
        return data, answer["ContentLength"]
    answer = client.get_object(Bucket=bucket, Key=key, Range=f"bytes={offset}-{offset + size - 1}")
    return answer["Body"].read(), int(answer["ContentRange"].rpartition("/")[2])


def _refused(input_: Input, error: ClientError) -> Exception:
    """The exception for an error response of S3."""
    code = str(error.response.get("Error", {}).get("Code"))
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500)
    if code in ("NoSuchKey", "404"):
        return missing(input_)
    if code == "InvalidRange":
        return ChangedInput(f"{input_.uri} has fewer than the expected {input_.file_bytes} bytes; restore the original object")
    if status in _DENIED:  # about access, not about the object: permissions and credentials can be restored
        return TransientMergeError(
            f"{input_.uri} cannot be read: {error}; allow access, or check the AWS variables of the environment"
        )
    if status < 500 and code not in _TRANSIENT:
        return PermanentMergeError(f"{input_.uri} cannot be read: {error}; correct the location")
    return TransientMergeError(f"{input_.uri} could not be read: {error}")
