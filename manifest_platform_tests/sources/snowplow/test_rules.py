"""The rules that shredding takes from a dataset's settings."""

import pickle

import pytest

from manifest_platform.sources.snowplow.rules import Kinds, Rules
from manifest_platform.sources.snowplow.settings import SnowplowShredSettings


@pytest.mark.parametrize("validate", ["full", "types", "off"])
def test_the_rules_follow_the_settings_and_travel_to_workers(validate):
    given = {"validate": validate, "names": "dotted", "rows": "events", "other_properties": "keep"}
    settings = SnowplowShredSettings.model_validate({"output": "out", "schemas": ["schemas"], **given})
    assert pickle.loads(pickle.dumps(settings.rules())) == Rules(validate, "dotted", "events", Kinds(True, True), None, "keep")


def test_entities_are_checked_by_their_schemas_unless_told_otherwise():
    assert SnowplowShredSettings.model_validate({"output": "out", "schemas": ["schemas"]}).rules().validate == "full"
