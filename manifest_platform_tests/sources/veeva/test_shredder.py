import csv
import hashlib
import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from manifest_platform import storage
from manifest_platform.fake_vault import Fault, Simulation, archive_of, schema_changes
from manifest_platform.fake_vault import Window as Told
from manifest_platform.listing import Column, Listing, Retired, Table
from manifest_platform.shred.batch import Cause, ShredFailure, Unusable
from manifest_platform.sources.veeva.direct_data import read_contents
from manifest_platform.sources.veeva.shredder import BAD_ROWS, VeevaOptions, Window, shred

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
STOP, DATE = "2026-01-01T00:15Z", "2026-01-01"
METADATA = b"extract,column_name,type,length,new__v\n" + b"".join(
    b"Object.product__v,%s,%s,12,x\n" % each
    for each in [
        (b"id", b"String"),
        (b"price__c", b"Number"),
        (b"sold__c", b"Date"),
        (b"late__c", b"DateTime"),
        (b"on__c", b"Boolean"),
    ]
)
PRODUCT = "Object/product__v.csv"


def lines(*rows: str) -> bytes:
    return "".join(f"{row}\n" for row in rows).encode()


def manifest(*rows: str) -> bytes:
    return lines("extract,extract_label,type,records,file", *rows)


UPDATES = f"Object.product__v,Product,updates,1,{PRODUCT}"
TREE = {
    "manifest.csv": manifest(UPDATES),
    "metadata_full.csv": METADATA,
    PRODUCT: lines("id,price__c", "V1,1.10"),
}


@pytest.fixture
def landed(tmp_path: Path) -> Callable[..., Window]:
    """Creates a window from a tree of files."""
    made = 0

    def make(tree: dict[str, bytes], feed: Any = "incr", stop: str = STOP, **how: Any) -> Window:
        nonlocal made
        made += 1
        place = tmp_path / "landed" / str(made) / "attempt=1"
        for path, content in tree.items():
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            (place / path).write_bytes(content)
        files = tuple((storage.as_uri(path), path.stat().st_size) for path in sorted(place.rglob("*")) if path.is_file())
        output = storage.as_uri(tmp_path / "shredded" / str(made))
        return Window(storage.as_uri(place.parent), files, output, f"a{made}", storage.as_uri(place), feed, stop, **how)

    return make


Landed = Callable[..., Window]


def hashes(tree: dict[str, bytes]) -> dict[str, str]:
    return {path: hashlib.sha256(content).hexdigest() for path, content in tree.items()}


def one(results: list[Listing | ShredFailure]) -> Listing:
    [result] = results
    assert isinstance(result, Listing), result
    return result


def refused(results: list[Listing | ShredFailure]) -> str:
    [result] = results
    assert isinstance(result, ShredFailure), result
    assert result.cause is Cause.ITEM
    return result.message


def rows(listing: Listing, table: str) -> list[dict[str, Any]]:
    found = [pq.read_table(storage.local_path(uri), partitioning=None) for uri in listing.uris(table)]
    return pa.concat_tables(found).to_pylist() if found else []


def table_of(listing: Listing, name: str) -> Table:
    return next(table for table in listing.tables if table.name == name)


def test_an_increment_becomes_upserts_and_deletes(spark: SparkSession, landed: Landed):
    window = landed(
        {
            "manifest.csv": manifest(
                f"Object.product__v,Product,updates,2,{PRODUCT}",
                "Object.product__v,Product,deletes,1,Object/product__v_deletes.csv",
                "Picklist.picklist__sys_deletes,Picklist,deletes,1,Picklist/picklist__sys_deletes.csv",
                "Document.document_relationships_deleted__sys,R,,1,Document/document_relationships_deleted__sys.csv",
                "Object.study__v,Study,updates,0,",
                "Object.soft_deletes_policy__c,Policy,,1,Object/soft_deletes_policy__c.csv",
            ),
            "metadata_full.csv": METADATA,
            PRODUCT: lines(
                "on__c,price__c,id,sold__c,late__c,free__c", "True,1.10,V1,2024-02-29,2024-01-01T01:00:00.5Z,00123", ",,V2,,,"
            ),
            "Object/product__v_deletes.csv": lines("id,price__c,deleted_date", "V3,n/a,whenever"),
            "Picklist/picklist__sys_deletes.csv": lines("object,object_field,picklist_value_name,deleted_date", "ab,c,d,"),
            "Document/document_relationships_deleted__sys.csv": lines("id,deleted_date", "7,"),
            "Object/soft_deletes_policy__c.csv": lines("id,name__v", "P,x"),
        }
    )
    listing = one(shred(spark, [window]))
    assert (listing.item, listing.attempt, listing.lines, listing.good, listing.bad) == (window.item, window.attempt, 6, 6, 0)
    assert {table.name: (table.mode, table.key, table.target) for table in listing.tables} == {
        "document_relationships__sys_deletes": ("delete", ("id",), "document_relationships__sys"),
        "picklist__sys_deletes": ("delete", ("object", "object_field", "picklist_value_name"), "picklist__sys"),
        "product__v": ("merge", ("id",), None),
        "product__v_deletes": ("delete", ("id",), "product__v"),
        "soft_deletes_policy__c": ("merge", ("id",), None),
    }
    assert [(column.name, column.type) for column in table_of(listing, "product__v").columns] == [
        ("on__c", "boolean"), ("price__c", "decimal(38,10)"), ("id", "string"), ("sold__c", "date"), ("late__c", "timestamp"),
        ("free__c", "string"),
    ]  # fmt: skip
    assert rows(listing, "product__v") == [
        {
            "on__c": True,
            "price__c": Decimal("1.1"),
            "id": "V1",
            "sold__c": datetime(2024, 2, 29).date(),
            "late__c": datetime(2024, 1, 1, 1, 0, 0, 500000),
            "free__c": "00123",
        },
        {"on__c": None, "price__c": None, "id": "V2", "sold__c": None, "late__c": None, "free__c": None},
    ]
    assert rows(listing, "product__v_deletes") == [{"id": "V3", "price__c": "n/a", "deleted_date": "whenever"}]
    assert rows(listing, "document_relationships__sys_deletes") == [{"id": "7", "deleted_date": None}]
    assert {re.sub("-[0-9a-f]{8}.parquet$", "", found.uri) for found in listing.objects} == {
        f"{window.output}/{table.name}/date={DATE}/00000-000" for table in listing.tables
    }
    assert {found.date for found in listing.objects} == {DATE}
    assert Listing.read(f"{window.output}/listing.json") == listing


def test_logs_are_appended_and_need_no_key(spark: SparkSession, landed: Landed):
    tree = {
        "manifest.csv": lines(
            "extract,records,file", "Log.login__sys,1,Log/login__sys.csv", "Metadata.metadata,1,Metadata/metadata.csv"
        ),
        "metadata_full.csv": lines("extract,column_name,type", "Log.login__sys,at,DateTime"),
        "Metadata/metadata.csv": lines("extract,column_name,type", "Log.login__sys,at,DateTime"),
        "Log/login__sys.csv": lines("at", "2026-01-01T00:00Z"),
    }
    listing = one(shred(spark, [landed(tree, "log")]))
    logins = Table("login__sys", (Column("at", "timestamp"),), "append", load_time=True, family="Log.login__sys")
    assert listing.tables == (BAD_ROWS, logins)
    assert (listing.lines, listing.retired) == (1, ())


def test_a_snapshot_replaces_tables_but_merges_partial_ones(spark: SparkSession, landed: Landed):
    tree = {
        "manifest.csv": lines(
            "extract,records,file",
            f"Object.product__v,1,{PRODUCT}",
            "Object.study__v,0,",
            "Object.site__v,0,Object/site__v.csv",
            "Workflow.task_legacy__sys,1,Workflow/task_legacy__sys.csv",
            "Object.legacy_site__c,1,Object/legacy_site__c.csv",
            "Object.keyless__v,1,Object/keyless__v.csv",
            "Metadata.metadata,7,Metadata/metadata.csv",
            "Metadata.object,1,Metadata/object.csv",
        ),
        "Metadata/metadata.csv": METADATA + lines("Object.study__v,id,String,,", "Object.unnamed__v,id,String,,"),
        "Metadata/object.csv": lines("a", "b"),
        PRODUCT: lines("id", "V1"),
        "Object/site__v.csv": lines("id,name__v"),
        "Workflow/task_legacy__sys.csv": lines("id", "T1"),
        "Object/legacy_site__c.csv": lines("id", "S1"),
        "Object/keyless__v.csv": lines("name__v", "x"),
    }
    listing = one(shred(spark, [landed(tree, "full")]))
    assert {table.name: (table.mode, table.key, len(table.columns)) for table in listing.tables} == {
        "bad": ("merge", ("file", "line"), len(BAD_ROWS.columns)),
        "keyless__v": ("replace", (), 1),
        "legacy_site__c": ("replace", ("id",), 1),
        "metadata": ("replace", ("extract", "column_name"), 5),
        "product__v": ("replace", ("id",), 1),
        "site__v": ("replace", ("id",), 2),
        "study__v": ("replace", ("id",), 1),
        "task_legacy__sys": ("merge", ("id",), 1),
    }
    brought = {"keyless__v", "legacy_site__c", "metadata", "product__v", "task_legacy__sys"}
    assert {found.table for found in listing.objects} == brought
    assert listing.lines == 11


@pytest.mark.parametrize(
    ("patterns", "merged"), [(("*",), {"task_legacy__sys"}), (("*legacy*",), {"task_legacy__sys"}), ((), set())]
)
def test_the_tables_that_a_snapshot_holds_in_part_are_workflows_whatever_the_patterns(patterns, merged):
    names = ["Object.legacy_site__c", "Object.product__v", "Workflow.task_legacy__sys"]
    files = {f"{name}.csv": lines("id", "1") for name in names}
    tree = {
        "manifest.csv": lines("extract,records,file", *(f"{name},1,{name}.csv" for name in names)),
        "metadata_full.csv": METADATA,
        **files,
    }
    contents = read_contents("full", list(tree), lambda paths: {path: tree[path] for path in paths}, {}, patterns)
    tables = [contents.table(extract, ["id"]) for extract in contents.extracts]
    assert {table.name for table in tables if table.mode == "merge"} == merged
    assert {table.family for table in tables} == set(names)


def test_names_of_columns_match_without_case():
    """A header spelled names in another case than the metadata: numbers became text, and announced columns were added twice."""
    path = "Object/product__v_deletes.csv"
    tree = {
        "manifest.csv": manifest(
            UPDATES,
            f"Object.product__v,Product,deletes,1,{path}",
            "Metadata.metadata,Metadata,updates,1,Metadata/metadata.csv",
            "Metadata.metadata_deletes,Metadata,deletes,2,Metadata/metadata_deletes.csv",
        ),
        "metadata_full.csv": METADATA,
        "Metadata/metadata.csv": lines(
            "extract,column_name,type", "Object.product__v,Sold__C,Date", "Object.product__v,on__c,Boolean"
        ),
        "Metadata/metadata_deletes.csv": lines("extract,column_name", "Object.product__v,SOLD__C", "Object.product__v,x__c"),
        PRODUCT: b"",
        path: b"",
    }
    contents = read_contents(
        "incr", list(tree), lambda paths: {one: tree[one] for one in paths}, {"product__v.PRICE__c": "Number"}, ()
    )
    updates, deletes = (extract for extract in contents.extracts if extract.table == "product__v")
    table = contents.table(updates, ["ID", "Price__c", "sold__c"])
    assert [(column.name, column.type) for column in table.columns] == [
        ("ID", "string"), ("Price__c", "decimal(38,10)"), ("sold__c", "date"), ("on__c", "boolean"),
    ]  # fmt: skip
    assert (table.key, contents.table(deletes, ["Id", "deleted_date"]).key) == (("ID",), ("Id",))
    assert contents.retired == (Retired("product__v", "x__c"),)


def test_columns_have_the_labels_of_the_metadata_where_these_are_other_words():
    tree = {
        "manifest.csv": manifest(UPDATES),
        "metadata_full.csv": lines(
            "extract,column_name,column_label,type",
            "Object.product__v,id,Product ID,String",
            "Object.product__v,name__v,name__v,String",
            "Object.product__v,Price__c,,Number",
        ),
        PRODUCT: b"",
    }
    contents = read_contents("incr", list(tree), lambda paths: {one: tree[one] for one in paths}, {}, ())
    [extract] = contents.extracts
    assert contents.table(extract, ["ID", "name__v", "price__c"]).descriptions == {"ID": "Product ID"}


@pytest.mark.parametrize("feed", ["incr", "log"])
def test_a_window_with_only_the_changes_of_columns_is_refused(feed):
    """With those alone, numbers would be typed as text."""
    tree = {
        "manifest.csv": manifest(UPDATES, "Metadata.metadata,Metadata,updates,1,Metadata/metadata.csv"),
        "Metadata/metadata.csv": lines("extract,column_name,type", "Object.study__v,size__c,Number"),
        PRODUCT: TREE[PRODUCT],
    }
    with pytest.raises(
        Unusable, match=r"there is no metadata_full.csv, so not every column has a type; land the complete window"
    ):
        read_contents(feed, list(tree), lambda paths: {path: tree[path] for path in paths}, {}, ())


def test_A14_what_the_metadata_drop_is_retired_and_what_they_add_is_a_column(spark: SparkSession, landed: Landed):
    known = METADATA + lines(
        "Object.study__v,id,String,,",
        "Object.study__v,size__c,Number,,",
        "Log.login__sys,id,String,,",
        "Object.old__v,name__v,String,,",
        "Metadata.metadata,modified_date,DateTime,,",
    )
    tree = {
        **TREE,
        "manifest.csv": manifest(
            UPDATES,
            "Metadata.metadata,Metadata,updates,5,Metadata/metadata.csv",
            "Metadata.metadata_deletes,Metadata,deletes,5,Metadata/metadata_deletes.csv",
        ),
        "metadata_full.csv": known,
        "Metadata/metadata.csv": lines(
            "modified_date,column_name,type,extract,is_formula",
            "2026-01-01T00:00Z,late__c,DateTime,Object.product__v,false",
            ",size__c,Number,Object.study__v,",
            ",name__v,String,Object.keyless__v,",
            ",id,String,Log.login__sys,",
            ",back__c,Boolean,Object.product__v,",
        ),
        "Metadata/metadata_deletes.csv": lines(
            "extract,column_name,deleted_date",
            "Object.product__v,gone__c,2026-01-01T00:00Z",
            "Object.product__v,back__c,",
            "Object.old__v,id,",
            "Picklist.older__sys,object,",
            "Log.login__sys,id,",
        ),
    }
    listing = one(shred(spark, [landed(tree)]))
    assert set(listing.retired) == {Retired("product__v", "gone__c"), Retired("old__v"), Retired("older__sys")}
    assert [(column.name, column.type) for column in table_of(listing, "product__v").columns] == [
        ("id", "string"), ("price__c", "decimal(38,10)"), ("late__c", "timestamp"), ("back__c", "boolean"),
    ]  # fmt: skip
    assert rows(listing, "product__v") == [{"id": "V1", "price__c": Decimal("1.1"), "late__c": None, "back__c": None}]
    assert table_of(listing, "study__v") == Table(
        "study__v", (Column("id", "string"), Column("size__c", "decimal(38,10)")), "merge", ("id",)
    )
    assert listing.rows("study__v") == 0
    assert {table.name for table in listing.tables} == {"product__v", "study__v", "metadata", "metadata_deletes"}
    assert {column.type for column in table_of(listing, "metadata").columns} == {"string"}
    assert table_of(listing, "metadata_deletes").key == ("extract", "column_name")
    assert listing.rows("metadata_deletes") == 5
    in_tasks = landed(tree)
    again = one(shred(spark, [in_tasks], VeevaOptions(split_size=200)))
    assert (again.tables, again.retired) == (listing.tables, listing.retired)
    assert Listing.read(f"{in_tasks.output}/listing.json") == again


def test_the_metadata_are_corrected_by_configuration(spark: SparkSession, landed: Landed):
    path = "Document/document_version__sys.csv"
    tree = {
        "manifest.csv": manifest(UPDATES, f"Document.document_version__sys,D,updates,1,{path}"),
        "metadata_full.csv": METADATA + lines("Document.document_version__sys,document_number__v,Number,,"),
        PRODUCT: lines("id,price__c", "V1,a lot"),
        path: lines("id,document_number__v", "1_0_1,VV-00001"),
    }
    assert rows(one(shred(spark, [landed(tree)])), "document_version__sys") == [
        {"id": "1_0_1", "document_number__v": "VV-00001"}
    ]
    listing = one(shred(spark, [landed(tree)], VeevaOptions(types={"product__v.price__c": "LongText"})))
    assert (listing.bad, rows(listing, "product__v")) == (0, [{"id": "V1", "price__c": "a lot"}])
    assert rows(listing, "document_version__sys")[0]["document_number__v"] == "VV-00001"


def test_an_unknown_type_fails_the_window_that_needs_it(spark: SparkSession, landed: Landed):
    strange = METADATA + lines("Object.product__v,shape__c,Geometry,,", "Object.other__v,shape__c,Geometry,,")
    assert one(shred(spark, [landed({**TREE, "metadata_full.csv": strange})])).good == 1
    needed = {**TREE, "metadata_full.csv": strange, PRODUCT: lines("id,shape__c", "V1,round")}
    message = refused(shred(spark, [landed(needed)]))
    assert "product__v.shape__c the type 'Geometry'" in message
    assert "shred.types: {product__v.shape__c: String}" in message
    assert one(shred(spark, [landed(needed)], VeevaOptions(types={"product__v.shape__c": "String"}))).good == 1


def test_bad_rows_are_set_aside_up_to_a_threshold(spark: SparkSession, landed: Landed):
    tree = {
        **TREE,
        "manifest.csv": manifest(f"Object.product__v,P,updates,6,{PRODUCT}"),
        PRODUCT: b"id,price__c\nV1,1\n,2\nV3,three\nV4\nV5,5\n\xff,6\n",
    }
    window = landed(tree)
    listing = one(shred(spark, [window], VeevaOptions(max_bad_share=0.7)))
    assert (listing.lines, listing.good, listing.bad) == (6, 2, 4)
    assert [row["id"] for row in rows(listing, "product__v")] == ["V1", "V5"]
    assert [(row["line"], row["raw"]) for row in rows(listing, "bad")] == [
        (3, ",2"),
        (4, "V3,three"),
        (5, "V4"),
        (7, "\ufffd,6"),
    ]
    assert {row["file"] for row in rows(listing, "bad")} == {f"{window.place}/{PRODUCT}"}
    assert (table_of(listing, "bad").mode, table_of(listing, "bad").key) == ("merge", ("file", "line"))
    [file] = listing.uris("bad")
    assert file.startswith(f"{window.output}/bad/date={DATE}/00000-000-")
    message = refused(shred(spark, [landed(tree)], VeevaOptions(max_bad_count=4)))
    assert "4 of 6 lines" in message
    assert "for example line 3 of product__v.csv: field id: must not be empty" in message


LEFT = "Object/left.csv"
DAMAGES: dict[str, tuple[dict[str, bytes | None], str]] = {
    "no manifest": ({"manifest.csv": None}, "no manifest.csv among 2 files"),
    "no metadata": ({"metadata_full.csv": None}, "there is no metadata_full.csv, so not every column has a type"),
    "missing file": ({PRODUCT: None}, f"names {PRODUCT}, which does not exist"),
    "extra file": ({LEFT: b"id\n1\n"}, f"{LEFT} exists, but manifest.csv does not name it"),
    "fewer records": ({PRODUCT: b"id\n"}, "product__v.csv has 0 records, but manifest.csv says 1"),
    "more records": ({PRODUCT: b"id\n1\n2\n"}, "product__v.csv has at least 2 records, but manifest.csv says 1"),
    "no byte": ({PRODUCT: b""}, "product__v.csv has 0 records, but manifest.csv says 1"),
    "no key": ({PRODUCT: b"name__v\nx\n"}, "has no column id, which is part of its key; its header is name__v"),
    "duplicate column": ({PRODUCT: b"id,Id\n1,2\n"}, "product__v.csv has id twice"),
    "cut off": ({PRODUCT: b'id\n"V1'}, "product__v.csv ends within quotes"),
    "manifest not UTF-8": ({"manifest.csv": manifest(UPDATES) + b"\xff"}, "manifest.csv is not UTF-8"),
    "manifest no CSV": ({"manifest.csv": manifest(UPDATES) + b'"a"b\n'}, "manifest.csv, line 3 is not valid CSV"),
    "manifest ragged": ({"manifest.csv": manifest(UPDATES, "a,b")}, "manifest.csv, line 3: 2 fields, but the header has 5"),
    "manifest header": ({"manifest.csv": b"extract,file\n"}, "manifest.csv has no column records"),
    "manifest empty": ({"manifest.csv": b""}, "manifest.csv has no column extract, records, file"),
    "no number": ({"manifest.csv": manifest(f"Object.product__v,P,updates,one,{PRODUCT}")}, "line 2: records is 'one'"),
    "no name of file": ({"manifest.csv": manifest(UPDATES, "Object.a__v,A,updates,1,")}, "Object.a__v has 1 records but no"),
    "other type": ({"manifest.csv": manifest(f"Object.product__v,P,upserts,1,{PRODUCT}")}, "type 'upserts' is neither"),
    "no component": ({"manifest.csv": manifest(f"product__v,P,updates,1,{PRODUCT}")}, "'product__v' cannot be a table"),
    "only a table": ({"manifest.csv": manifest(f".product__v,P,updates,1,{PRODUCT}")}, "'.product__v' cannot be a table"),
    "bad name": ({"manifest.csv": manifest(f"Object.a/b,P,updates,1,{PRODUCT}")}, "'Object.a/b' cannot be a table"),
    "taken name": ({"manifest.csv": manifest(f"Object.bad,P,updates,1,{PRODUCT}")}, "'Object.bad' cannot be a table"),
    "one table twice": (
        {"manifest.csv": manifest(UPDATES, f"Workflow.Product__v,P,updates,1,{LEFT}"), LEFT: b"id\n1\n"},
        "Object.product__v and Workflow.Product__v would share the table product__v, and their rows could not be told apart; "
        "set another table for the newer extract in the configuration, as"
        " shred.tables: {Workflow.Product__v: workflow_product__v}",
    ),
    "one table of two, the other of which has no rows": (
        {"manifest.csv": manifest(UPDATES, "Workflow.product__v,P,updates,0,")},
        "Object.product__v and Workflow.product__v would share the table",
    ),
    "one table of two, the other of which the metadata have": (
        {"metadata_full.csv": METADATA + lines("Workflow.product__v,id,String,,")},
        "Object.product__v and Workflow.product__v would share the table",
    ),
    "a table with a key of its own": (
        {"manifest.csv": manifest("Object.picklist__sys,P,updates,1,Object/p.csv"), PRODUCT: None, "Object/p.csv": b"id\n1\n"},
        "Picklist.picklist__sys and Object.picklist__sys would share the table picklist__sys",
    ),
    "one extract twice": (
        {"manifest.csv": manifest(UPDATES, f"object.Product__v,P,updates,1,{LEFT}"), LEFT: b"id\n1\n"},
        f"manifest.csv names object.Product__v twice, with the files {PRODUCT} and {LEFT}",
    ),
    "one file twice": (
        {"manifest.csv": manifest(UPDATES, f"Object.other__v,O,updates,1,{PRODUCT}")},
        f"manifest.csv names {PRODUCT} more than once",
    ),
    "log": ({"manifest.csv": manifest(f"Log.product__v,P,updates,1,{PRODUCT}")}, "a log, which only log windows may hold"),
    "metadata header": ({"metadata_full.csv": b"extract,column_name\n"}, "metadata_full.csv has no column type"),
    "news of no table": (
        {
            "manifest.csv": manifest(UPDATES, "Metadata.metadata,M,updates,1,Metadata/metadata.csv"),
            "Metadata/metadata.csv": b"extract,column_name,type\nObject.a b,id,String\n",
        },
        "Metadata/metadata.csv, line 2: extract 'Object.a b' cannot be a table",
    ),
}  # fmt: skip


def test_a_damaged_window_fails_alone_with_the_place_of_the_damage(spark: SparkSession, landed: Landed):
    damaged = [
        landed({path: content for path, content in {**TREE, **damage}.items() if content is not None})
        for damage, _ in DAMAGES.values()
    ]
    results = shred(spark, [*damaged, landed(TREE)])
    assert one(results[-1:]).good == 1
    for name, (_, message), window, result in zip(DAMAGES, DAMAGES.values(), damaged, results[:-1], strict=True):
        assert message in refused([result]), name
        assert not storage.local_path(f"{window.output}/listing.json").exists()


def test_Object_x_beside_Workflow_x_is_two_tables_as_the_message_advises(spark: SparkSession, landed: Landed):
    """Their types were always mixed, and so were their rows if only one of them had any in a window."""
    tree = {
        "manifest.csv": manifest(
            UPDATES, "Workflow.product__v,P,updates,1,Workflow/p.csv", "Workflow.product__v,P,deletes,1,d.csv"
        ),
        "metadata_full.csv": METADATA + lines("Workflow.product__v,id,String,,", "Workflow.product__v,price__c,String,,"),
        PRODUCT: TREE[PRODUCT],
        "Workflow/p.csv": lines("id,price__c", "V1,dear"),
        "d.csv": lines("id", "V2"),
    }
    assert "shred.tables: {Workflow.product__v: workflow_product__v}" in refused(shred(spark, [landed(tree)]))
    options = VeevaOptions(tables={"Workflow.product__v": "workflow_product__v"})
    listing = one(shred(spark, [landed(tree)], options))
    assert rows(listing, "product__v") == [{"id": "V1", "price__c": Decimal("1.1000000000")}]
    assert rows(listing, "workflow_product__v") == [{"id": "V1", "price__c": "dear"}]
    assert table_of(listing, "workflow_product__v_deletes").target == "workflow_product__v"


def test_kept_files_that_the_manifest_does_not_name_do_not_become_tables(spark: SparkSession, landed: Landed):
    tree = {**TREE, LEFT: b"id\n1\n"}
    listing = one(shred(spark, [landed(tree, expected=hashes(tree))], VeevaOptions(keep_unnamed=True)))
    assert (listing.good, listing.lines) == (1, 1)
    assert {table.name for table in listing.tables} == {table.name for table in one(shred(spark, [landed(TREE)])).tables}


def test_the_faults_of_a_vault_are_reported(spark: SparkSession, landed: Landed):
    simulation = Simulation(seed=3, begin=BEGIN, rows=20, changes=(40, 60))
    archive = archive_of(simulation, Told("incr", BEGIN, simulation.stop(0)))
    messages = {
        "wrong_records": "records, but manifest.csv says",
        "missing_file": "which does not exist",
        "extra_file": "Object/not_in_the_manifest__c.csv exists, but manifest.csv does not name it",
        "header_mismatch": "fits none of its rows",
        "duplicate_column": "twice",
        "unknown_type": "the type 'Hologram'",
    }
    spoilt = [Fault(kind, window="incr/2026-01-01T00:15Z").spoil(archive).tree() for kind in [*messages, "non_utf8"]]
    *results, not_utf8 = shred(spark, [landed(tree, expected=hashes(tree)) for tree in spoilt])
    for message, result in zip(messages.values(), results, strict=True):
        assert message in refused([result])
    listing = one([not_utf8])
    [bad] = rows(listing, "bad")
    assert "Z\ufffdrich" in bad["raw"]
    assert json.loads(bad["reasons"])[0]["value"] == "Z\ufffdrich"


def test_a_file_may_have_any_name(spark: SparkSession, landed: Landed):
    path = "Object/a % name+é.csv"
    tree = {**TREE, "manifest.csv": manifest(f"Object.product__v,P,updates,1,./{path}"), path: TREE[PRODUCT]}
    del tree[PRODUCT]
    assert one(shred(spark, [landed(tree, expected=hashes(tree))])).good == 1


def test_deletes_belong_to_increments(spark: SparkSession, landed: Landed):
    tree = {
        "manifest.csv": manifest("Object.product__v,P,deletes,1,Object/product__v_deletes.csv"),
        "metadata_full.csv": METADATA,
        "Object/product__v_deletes.csv": lines("id", "1"),
    }
    assert "which only increments may hold" in refused(shred(spark, [landed(tree, "full")]))
    columns = {"manifest.csv": manifest("Metadata.metadata_deletes,M,deletes,1,Object/product__v_deletes.csv")}
    assert "which only increments may hold" in refused(shred(spark, [landed({**tree, **columns}, "full")]))
    none = {**tree, "manifest.csv": manifest("Object.product__v,P,deletes,0,Object/product__v_deletes.csv")}
    assert one(shred(spark, [landed(none, "full")])).tables == (BAD_ROWS,)


def test_a_snapshot_whose_rows_should_have_a_key_and_have_none_is_refused(spark: SparkSession, landed: Landed):
    tree = {**TREE, PRODUCT: lines("name__v", "x")}
    assert "no column id" in refused(shred(spark, [landed(tree, "full")]))
    in_part = {
        **tree,
        "manifest.csv": TREE["manifest.csv"].replace(b"Object.", b"Workflow."),
        "metadata_full.csv": b"extract,column_name,type\n",
    }
    assert "no column id" in refused(shred(spark, [landed(in_part, "full")], VeevaOptions(partial_in_full=("product__v",))))


ALTERED = "altered after it was registered"


def test_A9_a_file_that_was_altered_after_it_was_registered_fails_the_window(spark: SparkSession, landed: Landed):
    alterations: list[dict[str, bytes]] = [
        {PRODUCT: lines("id,price__c", "V1,9.10")},
        {PRODUCT: lines("iD,price__c", "V1,1.10")},
        {"manifest.csv": TREE["manifest.csv"].replace(b"Product,", b"product,")},
        {"metadata_full.csv": METADATA.replace(b"12", b"13")},
        {LEFT: b"id\n"},
    ]
    expected = hashes(TREE)
    windows = [landed({**TREE, **altered}, expected=expected) for altered in alterations]
    gone = landed({path: TREE[path] for path in TREE if path != PRODUCT}, expected=expected)
    whole = landed({**TREE, "_files.json": b"{}", ".hidden": b""}, expected={**expected, "_files.json": "of no matter"})
    large = {
        **TREE,
        "manifest.csv": manifest(f"Object.product__v,P,updates,900000,{PRODUCT}"),
        PRODUCT: b"id\n" + b"1234567\n" * 900_000,
    }
    at_its_end = landed({**large, PRODUCT: large[PRODUCT][:-2] + b"8\n"}, expected=hashes(large))
    all_gone = landed({}, expected=expected)
    results = shred(spark, [*windows, gone, all_gone, at_its_end, whole])
    for result in results[:-1]:
        assert ALTERED in refused([result])
    assert one(results[-1:]).good == 1
    size = landed(TREE, expected=expected)
    (storage.local_path(size.place) / PRODUCT).write_bytes(TREE[PRODUCT] + b"V2,\n")
    assert "registered with" in refused(shred(spark, [size]))


def test_A9_windows_that_others_land_are_not_verified(spark: SparkSession, landed: Landed):
    assert one(shred(spark, [landed({**TREE, PRODUCT: lines("id,price__c", "V1,9.10")}, expected=None)])).good == 1


def test_a_batch_of_windows_is_one_job(spark: SparkSession, landed: Landed):
    windows = [landed({**TREE, PRODUCT: lines("id", f"V{number}")}) for number in range(12)]
    spark.sparkContext.setJobGroup("one-veeva-job", "counts the jobs of a batch")
    results = shred(spark, windows)
    spark.sparkContext.setJobGroup("other", "")
    assert [rows(one([result]), "product__v") for result in results] == [[{"id": f"V{number}"}] for number in range(12)]
    assert len(spark.sparkContext.statusTracker().getJobIdsForGroup("one-veeva-job")) == 1


def test_an_empty_window_needs_no_job(spark: SparkSession, landed: Landed):
    window = landed({})
    spark.sparkContext.setJobGroup("no-veeva-job", "counts the jobs of an empty batch")
    listing = one(shred(spark, [window]))
    spark.sparkContext.setJobGroup("other", "")
    assert (listing.lines, listing.tables, listing.objects) == (0, (), ())
    assert Listing.read(f"{window.output}/listing.json") == listing
    assert list(spark.sparkContext.statusTracker().getJobIdsForGroup("no-veeva-job")) == []


def test_the_manifest_of_a_window_without_data_files_is_checked(spark: SparkSession, landed: Landed):
    assert one(shred(spark, [landed({"manifest.csv": manifest(), "metadata_full.csv": METADATA})])).tables == ()
    assert "which does not exist" in refused(
        shred(spark, [landed({"manifest.csv": manifest(UPDATES), "metadata_full.csv": METADATA})])
    )


@pytest.mark.parametrize("split_size", [20, 4000, 1 << 20])
def test_shredding_is_repeatable_at_any_split_size(spark: SparkSession, landed: Landed, split_size: int):
    names = [f"o{number}__v" for number in range(5)]
    many = 600 if split_size == 4000 else 3
    tree = {
        "manifest.csv": manifest(*(f"Object.{name},O,updates,{many},Object/{name}.csv" for name in names)),
        "metadata_full.csv": METADATA,
        **{
            f"Object/{name}.csv": lines("id,name__v", *(f'{number},"{name}, ""x"""' for number in range(many)))
            for name in names
        },
    }
    window = landed(tree, expected=hashes(tree))
    again = replace(window, output=f"{window.output}-again", attempt="again")
    first, second = shred(spark, [window, again], VeevaOptions(split_size=split_size))
    assert isinstance(first, Listing)
    assert isinstance(second, Listing)
    for name in names:
        assert rows(first, name) == [{"id": str(number), "name__v": f'{name}, "x"'} for number in range(many)]
    assert (len({uri.rpartition("/")[2] for uri in first.uris("o0__v") + first.uris("o4__v")}) > 1) == (split_size <= 4000)
    for old, new in zip(first.objects, second.objects, strict=True):
        assert storage.local_path(old.uri).read_bytes() == storage.local_path(new.uri).read_bytes()


def test_a_large_file_that_cannot_be_cut_is_written_in_parts(spark: SparkSession, landed: Landed):
    """Each split is a task of Spark: with splits of 100 bytes, this file took hours, and no time limit of a test ends that."""
    count, megabyte = 12, 1 << 20
    text = f'2" pipe{"x" * megabyte}'  # a quote within an unquoted value: no cut is safe
    tree = {**TREE, "manifest.csv": manifest(f"Object.product__v,P,updates,{count},{PRODUCT}")}
    tree[PRODUCT] = lines("id,text", *(f"{number},{text}" for number in range(count)))
    listing = one(shred(spark, [landed(tree)], VeevaOptions(split_size=megabyte)))
    assert [row["id"] for row in rows(listing, "product__v")] == [str(number) for number in range(count)]
    assert len(listing.uris("product__v")) > 1


class Copy:
    """The content of a warehouse after applying listings: tables as rows by key, logs as lists."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[tuple, dict[str, Any]]] = {}
        self.logs: dict[str, list[dict[str, Any]]] = {}

    def apply(self, listing: Listing) -> None:
        assert listing.bad == 0
        for table in sorted(listing.tables, key=lambda table: table.mode != "delete"):
            found = rows(listing, table.name)
            keyed = {tuple(row[name] for name in table.key): row for row in found}
            held = self.tables.setdefault(table.target or table.name, {})
            match table.mode:
                case "delete":
                    self.tables[table.target or ""] = {key: row for key, row in held.items() if key not in keyed}
                case "replace":
                    self.tables[table.name] = keyed
                case "merge":
                    held.update(keyed)
                case "append":
                    self.logs.setdefault(table.name, []).extend(found)


def as_stored(row: dict[str, Any]) -> dict[str, Any]:
    """Returns a row in the form of tables: times in UTC without a zone, None for an empty text."""
    return {
        column: value.replace(tzinfo=None) if isinstance(value, datetime) else None if value == "" else value
        for column, value in row.items()
    }


def records(tree: dict[str, bytes]) -> int:
    """Returns the numbers of records that the manifest of an archive has for tables."""
    told = csv.DictReader(io.StringIO(tree["manifest.csv"].decode(), newline=""))
    return sum(int(row["records"]) for row in told if row["extract"] not in ("Metadata.object", "Metadata.document"))


def test_A13_A14_shredded_and_replayed_archives_equal_the_vault(spark: SparkSession, landed: Landed):
    """A13: columns come with the metadata; A14: dropped ones are retired. Snapshot and log have the same stop time."""
    changes = schema_changes(add_field=1, add_object=2, drop_field=3, drop_object=4)
    simulation = Simulation(seed=7, begin=BEGIN, rows=20, changes=(20, 40), script=changes)
    told = [Told("full", datetime(2000, 1, 1, tzinfo=UTC), BEGIN), Told("log", BEGIN - timedelta(days=1), BEGIN)]
    told += [Told("incr", BEGIN + number * timedelta(minutes=15), simulation.stop(number)) for number in range(6)]
    trees = [archive_of(simulation, window).tree() for window in told]
    windows = [
        landed(tree, window.feed, f"{window.stop:%Y-%m-%dT%H:%MZ}", expected=hashes(tree))
        for window, tree in zip(told, trees, strict=True)
    ]
    copy, retired = Copy(), set()
    for tree, result in zip(trees, shred(spark, windows), strict=True):
        listing = one([result])
        assert listing.lines == records(tree)
        copy.apply(listing)
        retired |= {(each.table, each.column) for each in listing.retired}
    at = simulation.stop(5)
    for name, expected in simulation.tables(at, snapshots=[BEGIN]).items():
        columns = next(iter(expected.values()), {}).keys()
        held = {key: {column: row.get(column) for column in columns} for key, row in copy.tables.get(name, {}).items()}
        assert held == {key: as_stored(row) for key, row in expected.items()}, name
    assert simulation.dropped(at) <= retired
    logs = simulation.logs(BEGIN)
    assert any(logs.values())
    for name, expected in logs.items():
        assert copy.logs.get(name, []) == [as_stored(row) for row in expected], name
