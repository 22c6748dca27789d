"""S3 as a company runs it: encryption with a key, requester pays, another account's role, endpoints, dots in names.

What the S3 server of the tests does not enforce is held by the requests themselves, as a proxy sees them.
"""

from __future__ import annotations

import functools
import os
import re
import socket
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import FileSelector, FileType, S3FileSystem

from manifest_platform import aws, config, masking, storage
from manifest_platform.config import ConfigError
from manifest_platform.demo.s3 import ACCESS_KEY
from manifest_platform.demo.server import free_port
from manifest_platform.merging import stored
from manifest_platform.pipeline import Stop
from manifest_platform.pipeline.discovery import discover
from manifest_platform.s3_files import PART
from manifest_platform.sources import directories
from manifest_platform_tests.pipeline.shop import EVENTS, Shop, ended
from manifest_platform_tests.servers.proxy import Fault, proxied
from manifest_platform_tests.servers.s3 import PROXY_VARIABLES, S3Server, requests_of, through

KEY = "arn:aws:kms:eu-west-1:123456789012:key/0a1b2c3d-0000-1111-2222-333344445555"
ROLE = "arn:aws:iam::210987654321:role/landing-reader"
ENCRYPTED = {
    "x-amz-server-side-encryption": "aws:kms",
    "x-amz-server-side-encryption-aws-kms-key-id": KEY,
    "x-amz-server-side-encryption-bucket-key-enabled": "true",
}


def header(head: str, name: str) -> str | None:
    found = re.search(rf"^{name}: *(.*?)\r?$", head, re.IGNORECASE | re.MULTILINE)
    return found[1] if found else None


def writes(heads: list[str]) -> list[str]:
    """The requests that begin an object: whole objects, and uploads in parts."""
    begun = [head for head in heads if head.startswith("PUT") and "partNumber=" not in head.split(" ")[1]]
    return begun + [head for head in heads if head.startswith("POST") and "?uploads" in head.split(" ")[1]]


def unencrypted(heads: list[str]) -> list[str]:
    """The first lines of requests that write an object without the key."""
    return [
        head.partition("\r\n")[0]
        for head in writes(heads)
        if any(header(head, name) != value for name, value in ENCRYPTED.items())
    ]


# Encryption


def test_the_narrowest_location_holds() -> None:
    outer, inner = aws.Location(kms_key="outer"), aws.Location(kms_key="inner")
    aws.use(aws.Choices(locations={"s3://b": outer, "s3://b/in": inner}))
    told = [aws.location_of(uri) for uri in ("s3://b", "s3://b/x", "s3://b/in", "s3://b/in/x", "s3://b/inn", "s3://bb/x")]
    assert told == [outer, outer, inner, inner, outer, aws.Location()]


def test_all_that_is_written_is_encrypted_with_the_key(
    s3_bucket: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    aws.use(aws.Choices(locations={s3_bucket: aws.Location(kms_key=KEY)}))
    large = b"0123456789" * (PART // 8)
    with requests_of(s3_server, monkeypatch) as heads:
        storage.write_bytes(f"{s3_bucket}/small", b"content")
        storage.write_bytes(f"{s3_bucket}/large", large)
        storage.ObjectFolder(f"{s3_bucket}/overflow").put("name", b"content")
        with storage.open_output(f"{s3_bucket}/table.parquet") as sink:
            pq.write_table(pa.table({"a": [1, 2]}), sink)
        system, path = storage.filesystem(f"{s3_bucket}/small")
        system.copy_file(path, f"{path}-copy")
        system.move(f"{path}-copy", f"{path}-moved")
    assert len(writes(heads)) == 6
    assert unencrypted(heads) == []
    assert storage.read_bytes(f"{s3_bucket}/large") == large
    system, path = storage.filesystem(f"{s3_bucket}/table.parquet")
    assert pq.read_table(path, filesystem=system).to_pydict() == {"a": [1, 2]}
    assert storage.read_bytes(f"{s3_bucket}/small-moved") == b"content"
    assert system.get_file_info(f"{path.rpartition('/')[0]}/small-copy").type == FileType.NotFound


@pytest.mark.parametrize("location", [aws.Location(kms_key=KEY), aws.Location()], ids=["with a key", "without"])
def test_a_small_object_is_one_request_and_a_removal_writes_nothing(
    s3_bucket: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, location: aws.Location
) -> None:
    aws.use(aws.Choices(locations={s3_bucket: location}))
    folder = storage.ObjectFolder(f"{s3_bucket}/folder")
    with requests_of(s3_server, monkeypatch) as heads:
        uri = folder.put("name", b"content")
        folder.remove(uri)
        folder.remove(uri)
    assert [head.split(" ")[0] for head in heads] == ["PUT", "DELETE", "DELETE"]
    folder.put("a/b", b"1")
    folder.put("c", b"2")
    assert list(folder.list("a")) == [(f"{folder.uri}/a/b", 1)]
    with requests_of(s3_server, monkeypatch) as heads:
        storage.delete_folder(folder.uri)
    assert [head.split(" ")[0] for head in heads] == ["GET", "POST"], "a list, and a deletion of all that it told"
    with pytest.raises(FileNotFoundError):
        storage.delete_folder(folder.uri)


def test_another_prefix_is_written_without_the_key(
    s3_bucket: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    aws.use(aws.Choices(locations={f"{s3_bucket}/in": aws.Location(kms_key=KEY)}))
    with requests_of(s3_server, monkeypatch) as heads:
        storage.write_bytes(f"{s3_bucket}/out/name", b"content")
    assert len(unencrypted(heads)) == 1


@pytest.mark.parametrize(("path", "sent"), [("partNumber=2", "a part"), ("uploadId=", "the last part, or the end")])
def test_an_upload_of_which_a_part_fails_is_aborted(
    s3_bucket: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, path: str, sent: str
) -> None:
    aws.use(aws.Choices(aws.Service(attempts=1), locations={s3_bucket: aws.Location(kms_key=KEY)}))
    line = re.compile(rf"(PUT|POST) [^ ]*{path}".encode())

    def refused(_number: int, request: bytes) -> Fault | None:
        return Fault.SLOW_DOWN if line.match(request) else None

    with through(s3_server, monkeypatch) as proxy:
        proxy.choose(refused)
        with pytest.raises(OSError, match=r"SlowDown|because a part of it was not"):
            storage.write_bytes(f"{s3_bucket}/large", b"0123456789" * (PART // 4))
        assert proxy.met == 1, sent
    assert not aws.client("s3").list_multipart_uploads(Bucket=s3_bucket.removeprefix("s3://")).get("Uploads")
    with pytest.raises(FileNotFoundError):
        storage.read_bytes(f"{s3_bucket}/large")


def test_a_refused_write_is_told_as_one(s3_bucket: str) -> None:
    aws.use(aws.Choices(locations={f"{s3_bucket}-there-is-none": aws.Location(kms_key=KEY)}))
    with pytest.raises(OSError) as refused:
        storage.write_bytes(f"{s3_bucket}-there-is-none/name", b"content")
    assert storage.is_refusal(refused.value)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_whole_drain_and_merge_write_nothing_without_the_key(
    tmp_path: Path, s3_bucket: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(
        tmp_path,
        landing={"root": f"{s3_bucket}/landing"},
        shred={"output": f"{s3_bucket}/shredded"},
        merge={"output": f"{s3_bucket}/merged"},
        manifest={"store": "sqlite:///manifest.db", "overflow": f"{s3_bucket}/overflow", "archive": f"{s3_bucket}/archive"},
        aws={"locations": {s3_bucket: {"kms_key": KEY}}},
    )
    with requests_of(s3_server, monkeypatch) as heads:
        shop.write(0, 1, bad_lines=2)
        with shop.open() as pipeline:
            discover(pipeline)
        done = ended(shop.process(None, "--then-merge", environment=dict(os.environ)), seconds=540)
    assert (done["stop"], done["merged"] > 0) == (Stop.IDLE, True)
    assert shop.seen.rows["events"] == 2 * EVENTS
    places = {urlsplit(head.split(" ")[1]).path.split("/")[2] for head in writes(heads)}
    assert places >= {"landing", "shredded", "merged"}
    assert unencrypted(heads) == []


# Requester pays


def test_a_bucket_whose_requester_pays_is_told_so_with_each_request(
    s3_bucket: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pa.table({"a": list(range(1000))})
    with storage.open_output(f"{s3_bucket}/in/table.parquet") as sink:
        pq.write_table(table, sink)
    storage.write_bytes(f"{s3_bucket}/in/deep/name", b"content")
    aws.use(aws.Choices(locations={f"{s3_bucket}/in": aws.Location(requester_pays=True)}))
    with requests_of(s3_server, monkeypatch) as heads:
        system, path = storage.filesystem(f"{s3_bucket}/in")
        assert pq.read_table(f"{path}/table.parquet", filesystem=system).equals(table)
        assert storage.read_bytes(f"{s3_bucket}/in/deep/name", 3) == b"con"
        found = system.get_file_info(FileSelector(path, recursive=True))
        assert {one.path.removeprefix(f"{path}/"): one.size for one in found if one.type == FileType.File}.keys() == {
            "table.parquet",
            "deep/name",
        }
        assert [one.base_name for one in system.get_file_info(FileSelector(path))] == ["table.parquet", "deep"]
        kinds = [one.type for one in system.get_file_info([f"{path}/deep", f"{path}/table.parquet", f"{path}/none"])]
        assert kinds == [FileType.Directory, FileType.File, FileType.NotFound]
        with pytest.raises(FileNotFoundError):
            storage.read_bytes(f"{s3_bucket}/in/none")
        with pytest.raises(FileNotFoundError):
            system.get_file_info(FileSelector(f"{path}/none"))
        assert directories.list_entries(f"{s3_bucket}/in", 10)[0] == ("deep",)
        stored.delete(f"{s3_bucket}/in", ["deep/name"])
    assert [head.partition("\r\n")[0] for head in heads if header(head, "x-amz-request-payer") != "requester"] == []


# Another account's bucket, by a role


@pytest.fixture(scope="module")
def account() -> Iterator[str]:
    """The endpoint of moto's server: STS and S3, of which no other server here has the first."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", free_port(), verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def foreign(account: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, list[str]]]:
    """A bucket that a role reaches, and the requests to its account: heads, and bodies of those to STS."""
    for name in list(os.environ):
        if name.startswith("AWS_") or name.upper() in PROXY_VARIABLES:
            monkeypatch.delenv(name)
    heads: list[str] = []
    address = urlsplit(account)
    with proxied(lambda: socket.create_connection((address.hostname, address.port)), is_http=True) as proxy:
        environment = S3Server(f"http://127.0.0.1:{proxy.port}").environment
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        aws.client("s3").create_bucket(Bucket="foreign")
        proxy.choose(lambda _number, request: heads.append(request.decode(errors="replace")))
        aws.use(aws.Choices(locations={"s3://foreign": aws.Location(role=ROLE, external_id="acme-1")}))
        yield "s3://foreign", heads


def test_a_role_is_assumed_with_its_external_id_by_boto3_and_by_arrow(foreign: tuple[str, list[str]]) -> None:
    bucket, heads = foreign
    storage.write_bytes(f"{bucket}/name", b"content")
    assert storage.read_bytes(f"{bucket}/name") == b"content"
    assert [one["Key"] for one in aws.s3(bucket).list_objects_v2(Bucket="foreign")["Contents"]] == ["name"]
    asked = [parse_qs(head.partition("\r\n\r\n")[2]) for head in heads if "AssumeRole" in head]
    assert [(one["RoleArn"], one["ExternalId"]) for one in asked] == [([ROLE], ["acme-1"])], "once, for both"
    to_s3 = [head for head in heads if " HTTP/1.1\r\n" in head and "/foreign" in head.split(" ")[1]]
    signed = {(re.findall(r"Credential=(\w+)/", head) or [""])[0] for head in to_s3}
    assert len(signed) == 1 and signed.isdisjoint({ACCESS_KEY, ""})
    assert all(header(head, "x-amz-security-token") for head in to_s3)


def test_the_session_of_a_role_is_renewed_before_it_expires(
    foreign: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket, heads = foreign
    real, aws_access = aws._assumed, aws.location_of(bucket).access
    soon = (datetime.now(UTC) + timedelta(minutes=1)).isoformat()
    aws.forget()
    monkeypatch.setattr(aws, "_assumed", lambda access: {**real(access), "expiry_time": soon})
    first, second = aws.keys_of(aws_access), aws.keys_of(aws_access)
    storage.write_bytes(f"{bucket}/name", b"content")
    aws.forget()
    assert first != second
    assert sum("AssumeRole" in head for head in heads) >= 3
    assert first and masking.masked(first[1]) == masking.MASK


# Endpoints, and names with dots


def test_a_location_is_asked_at_its_own_endpoint(s3_bucket: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    aws.use(aws.Choices(aws.Service(attempts=1), locations={s3_bucket: aws.Location(endpoint=s3_server.endpoint)}))
    storage.write_bytes(f"{s3_bucket}/name", b"content")
    assert aws.s3(s3_bucket).head_object(Bucket=s3_bucket.removeprefix("s3://"), Key="name")["ContentLength"] == 7
    with pytest.raises(OSError):
        storage.read_bytes(f"{s3_bucket}-another/name")


@contextmanager
def asked_hosts() -> Generator[tuple[str, list[str]]]:
    """A proxy for HTTPS that refuses each connection, and the hosts that it was asked for."""
    hosts: list[str] = []

    def serve(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                with client:
                    hosts.append(client.recv(4096).split(b" ")[1].decode())
                    client.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", hosts
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("by", ["boto3", "arrow"])
@pytest.mark.parametrize(
    ("bucket", "host"), [("acme-landing", "acme-landing.s3.{}.amazonaws.com"), ("acme.eu.landing", "s3.{}.amazonaws.com")]
)
def test_a_bucket_whose_name_has_dots_is_asked_by_its_path(
    monkeypatch: pytest.MonkeyPatch, by: str, bucket: str, host: str
) -> None:
    """S3's certificate is for one label before its own name, so a name with dots as a host fails TLS."""
    for name in list(os.environ):
        if name.startswith("AWS_") or name.upper() in PROXY_VARIABLES:
            monkeypatch.delenv(name)
    for name, value in S3Server("").environment.items():
        if name not in ("AWS_ENDPOINT_URL", "NO_PROXY"):
            monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    aws.use(aws.Choices(aws.Service(connect_seconds=2, read_seconds=2, attempts=1)))
    with asked_hosts() as (proxy, hosts):
        monkeypatch.setenv("HTTPS_PROXY", proxy)
        monkeypatch.setattr("pyarrow.fs.S3FileSystem", functools.partial(S3FileSystem, proxy_options=proxy))
        with pytest.raises(Exception, match=r"(?i)proxy|connect|403|forbidden"):
            aws.s3(f"s3://{bucket}").list_objects_v2(Bucket=bucket) if by == "boto3" else storage.read_bytes(
                f"s3://{bucket}/name"
            )
    assert set(hosts) == {f"{host.format('eu-west-1')}:443"}


# The configuration


def test_a_location_is_configured_by_bucket_or_prefix(tmp_path: Path) -> None:
    locations = {
        "s3://acme.landing/enriched": {"role": ROLE, "external_id": "acme-1", "region": "eu-west-1", "requester_pays": True},
        "s3://acme-lake": {"kms_key": KEY, "endpoint": "https://bucket.vpce-0a1b.s3.eu-west-1.vpce.amazonaws.com"},
    }
    config.load(Shop(tmp_path, aws={"locations": locations}).config_file)
    found = aws.location_of("s3://acme.landing/enriched/run=1")
    assert found == aws.Location(requester_pays=True, role=ROLE, external_id="acme-1", region="eu-west-1")
    assert aws.location_of("s3://acme-lake/shredded").kms_key == KEY


@pytest.mark.parametrize(
    ("location", "given", "told"),
    [
        ("/data", {}, r"aws\.locations\./data.*allowed: s3://bucket or s3://bucket/prefix"),
        ("s3://acme/in/", {}, r"aws\.locations\.s3://acme/in/.*without a slash"),
        ("s3://acme", {"external_id": "a-1"}, r"external_id: allowed only with role"),
        ("s3://acme", {"role": "landing-reader"}, r"role: 'landing-reader': .*arn:aws"),
        ("s3://acme", {"kms_key": "my key"}, r"kms_key: 'my key'"),
        ("s3://acme", {"endpoint": "vpce"}, r"endpoint: 'vpce': allowed: http"),
        (
            "s3://acme",
            {"key": "x"},
            r"key: unknown key; allowed here: endpoint, external_id, kms_key, region, requester_pays, role",
        ),
    ],
)
def test_a_wrong_location_is_told_with_what_is_allowed(tmp_path: Path, location: str, given: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        config.load(Shop(tmp_path, aws={"locations": {location: given}}).config_file)
