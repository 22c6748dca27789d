from pathlib import Path
from typing import Any

import orjson
import pytest

from manifest_platform import storage
from manifest_platform.shred.batch import Unusable
from manifest_platform.sources.snowplow.recognition import SEAL
from manifest_platform.sources.snowplow.schemas.keys import SchemaKey
from manifest_platform.sources.snowplow.seal import Seal, SealedType
from manifest_platform_tests.sources.snowplow.given import CLICK, PAGE
from manifest_platform_tests.sources.snowplow.transformed.given import seal, wide_seal


def test_a_seal_is_written_as_it_was_read():
    for document in (seal(3, [CLICK, PAGE]), seal(None), wide_seal(4)):
        assert Seal.parse(document).document() == document


def test_a_seal_of_the_first_version_has_flat_types():
    document = seal(2)
    del document["data"]["typesInfo"]
    document["data"]["types"] = [{"schemaKey": CLICK, "format": "TSV"}]
    document["schema"] = "iglu:com.snowplowanalytics.snowplow.storage/shredding_complete/jsonschema/1-0-1"
    found = Seal.parse(document)
    assert (found.transformation, found.good) == ("SHREDDED", 2)
    assert found.types == (SealedType(SchemaKey.parse(CLICK), "TSV", None),)


def _without_base(document: dict[str, Any]) -> None:
    del document["data"]["base"]


def _of_another_schema(document: dict[str, Any]) -> None:
    document["schema"] = "iglu:com.acme/x/jsonschema/1-0-0"


def _with_a_text_as_count(document: dict[str, Any]) -> None:
    document["data"]["count"] = {"good": "3"}


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (_without_base, "base is missing"),
        (_of_another_schema, "its schema is"),
        (_with_a_text_as_count, "count of good events"),
    ],
)
def test_other_documents_are_refused(tmp_path: Path, damage: Any, why: str):
    document = seal(3)
    damage(document)
    (tmp_path / SEAL).write_bytes(orjson.dumps(document))
    with pytest.raises(Unusable, match=f"is not a seal as Snowplow's transformer writes it: .*{why}"):
        Seal.read(tmp_path.as_uri())


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"schema": 1}', b"\xff"])
def test_what_is_no_document_is_refused(tmp_path: Path, content: bytes):
    (tmp_path / SEAL).write_bytes(content)
    with pytest.raises(Unusable, match="is not a seal"):
        Seal.read(tmp_path.as_uri())


def test_a_seal_that_is_gone_says_what_to_do(tmp_path: Path):
    with pytest.raises(Unusable, match="put it back, and accept the run"):
        Seal.read(tmp_path.as_uri())


def test_of_a_seal_that_is_too_large_only_the_beginning_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("manifest_platform.sources.snowplow.seal._LARGEST", 10)
    read: list[bytes] = []

    def reading(uri: str, most: int | None = None) -> bytes:
        read.append(read_bytes(uri, most))
        return read[-1]

    read_bytes = storage.read_bytes
    monkeypatch.setattr(storage, "read_bytes", reading)
    (tmp_path / SEAL).write_bytes(orjson.dumps(seal(3)))
    with pytest.raises(Unusable, match="it has more than 10 bytes"):
        Seal.read(tmp_path.as_uri())
    assert [len(one) for one in read] == [11]
