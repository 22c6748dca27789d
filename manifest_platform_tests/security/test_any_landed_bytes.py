"""Any bytes that land: a task ends in its memory and time, accounts for every row, reads nothing else, tells no secret."""

from __future__ import annotations

import bz2
import gzip
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from manifest_platform.listing import Listing
from manifest_platform.shred.batch import Options, ShredFailure
from manifest_platform.shred.limits import InputLimits
from manifest_platform.sources.veeva.shredder import VeevaOptions
from manifest_platform_tests.effort import cases
from manifest_platform_tests.security.confined import MIB, Confined, confined
from manifest_platform_tests.security.shredding import run_of, shred_run, shred_window, window_of
from manifest_platform_tests.sources.snowplow.given import CLICK, PAGE, acme_registry, contexts, enriched, entity, unstruct

LIMITS = InputLimits(line=64 << 10, inflation=50, files=40, dates=8, bad_rows=5_000)
MEMORY = 3072 * MIB  # of address space, of which Arrow's allocator reserves 1 GiB at its first use
OUTSIDE = "what lies outside of the landing root"
PRODUCT = "Object/product__v.csv"
METADATA = b"extract,column_name,type\nObject.product__v,id,String\nObject.product__v,n,Number\nObject.product__v,d,DateTime\n"


def up_to_a_mib(text: bytes, times: int) -> bytes:
    """Repeats a text, cut off at 1 MiB: Hypothesis keeps intermediate values, which could take gigabytes."""
    return (text * min(times, MIB // max(1, len(text)) + 1))[:MIB]


texts = st.sampled_from(
    ["", "x", "\0", "é", "9" * 400, "-1e999", "1e-999999999", "NaN", "0x1f", "\u202e", "/etc/passwd", "9" * 40]
)
dates = st.sampled_from(
    ["0000-00-00 00:00:00", "9999-12-31 23:59:59.999999999", "-1-1-1", "2024-02-30 00:00:00"]
) | st.dates().map(lambda day: f"{day} 00:00:00")
deep = st.integers(1, 20_000).map(lambda depth: '{"schema":' * depth) | st.integers(1, 20_000).map(lambda depth: "[" * depth)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | texts | st.just([]) | st.just({})
data = st.dictionaries(st.sampled_from(["targetUrl", "position", "place", "at", "day", "total", "id"]), scalars, max_size=7)
entities = st.builds(entity, st.sampled_from([CLICK, PAGE, "iglu:../../etc/passwd", "iglu:com.acme/no/jsonschema/1-0-0"]), data)
wrapped = st.lists(entities | scalars, max_size=40).map(lambda found: contexts(*found)) | entities.map(unstruct) | deep | texts
events = st.fixed_dictionaries(
    {},
    optional={
        "collector_tstamp": dates,
        "etl_tstamp": dates,
        "txn_id": texts,
        "geo_latitude": texts,
        "contexts": wrapped,
        "unstruct_event": wrapped,
        "page_title": texts,
    },
).map(lambda fields: enriched(**{name: value.replace("\t", " ").replace("\n", " ") for name, value in fields.items()}))
lines = (
    events
    | st.binary(max_size=200)
    | st.sampled_from([b"", b"\t" * 130, b"\t" * 70_000, b"x" * 70_000, b"\xff\xfe\0", b"\xef\xbb\xbf"])
)
repeated = st.tuples(st.lists(lines, max_size=12), st.integers(1, 800)).map(lambda two: up_to_a_mib(b"\n".join(two[0]), two[1]))
plain = st.binary(max_size=400) | repeated | st.integers(1, 300_000).map(lambda count: b"\n" * count)
small = plain.map(lambda text: text[: 1 << 20])
cut = st.integers(0, 40)
files = (
    small
    | st.tuples(small, cut).map(lambda two: gzip.compress(two[0], 1)[: -two[1] or None])
    | st.tuples(small, cut).map(lambda two: bz2.compress(two[0], 1)[: -two[1] or None])
    | st.binary(max_size=100).map(lambda tail: b"\x1f\x8b\x08" + tail)
    | st.binary(max_size=100).map(lambda tail: b"\x28\xb5\x2f\xfd" + tail)
    | st.just(gzip.compress(bytes(16 * MIB)) * 8)
)
fields = texts | st.sampled_from(['"', '"a\nb"', '"""', "1", "V1", "2024-01-01T00:00:00.000Z", "\r", "11E30"])
records = st.lists(st.lists(fields, min_size=1, max_size=4).map(",".join), max_size=12)
csvs = st.tuples(
    st.sampled_from(["id,n,d", "ID,id", "", "id", "n,d", "id,,", '"id', "x" * 300]), records, st.integers(1, 400)
).map(lambda three: "\n".join([three[0], *three[1] * three[2]]).encode()[: 1 << 20])
manifests = st.tuples(
    st.sampled_from(["0", "1", "12", "-1", "1e18", "9" * 30, "x"]), st.sampled_from([PRODUCT, "../../secret", "/etc/passwd"])
)
told = settings(max_examples=cases(6, 800), deadline=None, derandomize=not cases(0, 1), suppress_health_check=list(HealthCheck))


def holds(ended: Confined, root: Path) -> None:
    """Asserts the guarantees that hold for any landed bytes."""
    assert ended.is_bounded, ended
    assert ended.bytes < 500 * MIB
    assert not ended.error, "a task tells what is wrong, and raises nothing"
    assert not ended.says() and not ended.says(OUTSIDE)
    assert not ended.opened_outside(root / "landing", root / "out", root / "registry", "/etc/localtime")
    result: Any = ended.value
    if isinstance(result, Listing):
        assert result.lines == result.good + result.bad
        assert sum(found.rows for found in result.objects if found.table == "bad") == result.bad
        assert sum(found.rows for found in result.objects if found.table in ("events", "product__v")) == result.good
    else:
        assert isinstance(result, ShredFailure) and result.message
        assert "(at " not in result.message, "a defect, told with its place"


@told
@given(st.dictionaries(st.sampled_from("abc"), files, min_size=1, max_size=3), st.sampled_from([0.0, 0.5, 1.0]))
def test_of_any_run_every_line_is_accounted_for(landed: dict[str, bytes], share: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "secret").write_text(OUTSIDE)
        directory, registry = run_of(root, landed), str(acme_registry(root / "registry"))
        options = Options(split_size=256 << 10, max_bad_share=share, limits=LIMITS)

        holds(confined(shred_run, directory, registry, options, memory=MEMORY, seconds=30), root)


@told
@given(csvs | st.binary(max_size=300), manifests, st.sampled_from([METADATA, b"", b"\xff", METADATA * 300]))
def test_of_any_window_every_record_is_accounted_for(rows: bytes, manifest: tuple[str, str], metadata: bytes) -> None:
    count, file = manifest
    says = f"extract,extract_label,type,records,file\nObject.product__v,Product,updates,{count},{file}\n".encode()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "secret").write_text(OUTSIDE)
        window = window_of(root, {"manifest.csv": says, "metadata_full.csv": metadata, PRODUCT: rows})

        holds(confined(shred_window, window, VeevaOptions(max_bad_share=1.0, limits=LIMITS), memory=MEMORY, seconds=30), root)
