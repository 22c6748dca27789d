"""The rules that shredding takes from a dataset's settings."""

import pickle

import pytest

from manifest_platform.sources.snowplow.rules import Rules
from manifest_platform.sources.snowplow.settings import SnowplowShredSettings


@pytest.mark.parametrize("validate", ["full", "types", "off"])
def test_the_rules_follow_the_settings_and_travel_to_workers(validate):
    settings = SnowplowShredSettings.model_validate({"output": "out", "schemas": ["schemas"], "validate": validate})
    assert pickle.loads(pickle.dumps(settings.rules())) == Rules(validate=validate)


def test_entities_are_checked_by_their_schemas_unless_told_otherwise():
    assert SnowplowShredSettings.model_validate({"output": "out", "schemas": ["schemas"]}).rules().validate == "full"
