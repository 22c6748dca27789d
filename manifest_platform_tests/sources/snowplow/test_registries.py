"""The registries of a dataset: those of its settings, and those of Snowplow's own resolver configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from pydantic import ValidationError

from manifest_platform import masking
from manifest_platform.sources.snowplow.registries import places
from manifest_platform.sources.snowplow.schemas.registry import RegistryRefused
from manifest_platform.sources.snowplow.settings import SnowplowShredSettings

CONFIGURATION = "iglu:com.snowplowanalytics.iglu/resolver-config/jsonschema/1-0-1"


def repository(uri: str, **more: Any) -> dict[str, Any]:
    connection = {"http": {"uri": uri, **({"apikey": more.pop("apikey")} if "apikey" in more else {})}}
    return {"name": "x", "priority": 0, "vendorPrefixes": ["com.acme"], "connection": connection, **more}


def settings(path: Path, *repositories: Any, schema: str = CONFIGURATION, **more: Any) -> SnowplowShredSettings:
    path.write_bytes(orjson.dumps({"schema": schema, "data": {"cacheSize": 500, "repositories": repositories}}))
    return SnowplowShredSettings.model_validate({"output": "/tmp/x", "resolver": str(path), **more})


def test_the_registries_of_a_resolvers_configuration_are_asked(tmp_path: Path) -> None:
    embedded = {"name": "own", "priority": 0, "vendorPrefixes": [], "connection": {"embedded": {"path": "/x"}}}
    told = settings(
        tmp_path / "resolver.json",
        repository("https://iglu.acme.example/api", apikey="s3cr3t-apikey", priority=1),
        embedded,
        repository("http://iglucentral.example", vendorPrefixes=[""]),
        schemas=["/registry"],
        registries=[{"url": "/registry", "prefixes": ["org.other"], "priority": 3}],
    )
    found = [(str(one), one.apikey, one.prefixes, one.priority) for one in places(told)]
    assert found == [
        ("/registry", None, ("org.other",), 3),
        ("https://iglu.acme.example/api", "s3cr3t-apikey", ("com.acme",), 1),
        ("http://iglucentral.example", None, (), 0),
    ]
    assert "s3cr3t-apikey" not in f"{places(told)}"
    assert masking.masked("key s3cr3t-apikey") == "key ***"
    masking.forget()


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "x"},
        "x",
        repository("http://iglu.acme.example/api", apikey="s3cr3t-apikey"),
        repository("ftp://iglu.acme.example"),
        repository("https://iglu.acme.example", priority="first"),
    ],
)
def test_a_repository_that_cannot_be_used_is_named_by_its_number(wrong: Any, tmp_path: Path) -> None:
    with pytest.raises(RegistryRefused, match="repository 2 lacks") as refused:
        places(settings(tmp_path / "resolver.json", repository("https://iglu.acme.example"), wrong))
    assert "s3cr3t" not in str(refused.value)


def test_another_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RegistryRefused, match="is no configuration of a resolver"):
        places(settings(tmp_path / "resolver.json", schema="iglu:com.acme/x/jsonschema/1-0-0"))
    with pytest.raises(RegistryRefused, match="cannot be read"):
        places(SnowplowShredSettings(output="/tmp/x", resolver=str(tmp_path / "absent.json")))


def test_a_dataset_without_a_registry_is_refused() -> None:
    with pytest.raises(ValidationError, match="there is no registry"):
        SnowplowShredSettings(output="/tmp/x")
