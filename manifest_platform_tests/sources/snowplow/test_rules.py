"""The rules that shredding takes from a dataset's settings."""

import pickle

import pytest
from pydantic import ValidationError

from manifest_platform.sources.snowplow.rules import Kinds, Rules
from manifest_platform.sources.snowplow.settings import SnowplowShredSettings


@pytest.mark.parametrize("validate", ["full", "types", "off"])
def test_the_rules_follow_the_settings_and_travel_to_workers(validate):
    given = {"validate": validate, "names": "dotted", "rows": "events", "other_properties": "keep"}
    settings = SnowplowShredSettings.model_validate({"output": "out", "schemas": ["schemas"], **given})
    assert pickle.loads(pickle.dumps(settings.rules())) == Rules(validate, "dotted", "events", Kinds(True, True), None, "keep")


def test_entities_are_checked_by_their_schemas_unless_told_otherwise():
    assert SnowplowShredSettings.model_validate({"output": "out", "schemas": ["schemas"]}).rules().validate == "full"


@pytest.mark.parametrize(("form", "allowed"), [("json", False), ("table", False), ("skip", True)])
@pytest.mark.parametrize("version", ["1-0-*", "1-*-0", "1-0-0", "*-0-*"])
def test_some_versions_of_a_model_may_be_skipped_and_have_no_other_form(version: str, form: str, allowed: bool):
    entities = [{"schemas": f"iglu:com.acme/user/jsonschema/{version}", "as": form}]
    given = {"output": "out", "schemas": ["schemas"], "entities": entities}
    if allowed:
        SnowplowShredSettings.model_validate(given)
        return
    whole = f"iglu:com.acme/user/jsonschema/{version[0]}-*-*"
    with pytest.raises(ValidationError) as caught:
        SnowplowShredSettings.model_validate(given)
    [error] = caught.value.errors()
    assert error["loc"] == ("entities", 0)
    assert entities[0]["schemas"] in error["msg"] and f"allowed: {whole}" in error["msg"]
    SnowplowShredSettings.model_validate({**given, "entities": [{"schemas": whole, "as": form}]})
