from manifest_platform.sources.snowplow.events.atomic import EVENTS
from manifest_platform.sources.snowplow.fields import FIELDS, POSITION


def test_an_event_has_131_fields_and_its_table_the_128_that_are_not_json():
    assert len(FIELDS) == len(POSITION) == 131
    assert [field.name for field in FIELDS if field.is_json] == ["contexts", "unstruct_event", "derived_contexts"]
    assert [column.name for column in EVENTS.columns] == [field.name for field in FIELDS if not field.is_json]
    assert len(EVENTS.columns) == 128


def test_positions_of_important_fields():
    places = {
        0: "app_id",
        6: "event_id",
        52: "contexts",
        58: "unstruct_event",
        84: "br_features_pdf",
        120: "refr_domain_userid",
        121: "refr_dvce_tstamp",
        122: "derived_contexts",
        130: "true_tstamp",
    }
    assert {place: FIELDS[place].name for place in places} == places


def test_types_and_what_is_required():
    types = {column.name: column.type for column in EVENTS.columns}
    assert types["event_id"] == "string(36)"
    assert types["page_url"] == "string(4096)"
    assert (types["tr_total"], types["geo_latitude"]) == ("decimal(18,2)", "double")
    assert types["br_cookies"] == "boolean"
    assert types["txn_id"] == "integer"
    assert types["refr_dvce_tstamp"] == "timestamp"
    assert [column.name for column in EVENTS.columns if not column.nullable] == [
        "collector_tstamp",
        "event_id",
        "v_collector",
        "v_etl",
    ]
    assert EVENTS.mode == "append"
