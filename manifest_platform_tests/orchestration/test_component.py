"""The component in a user's own Dagster project: the output of `dg scaffold defs`, and other definitions beside it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster.components.core.component_tree import ComponentTreeException
from jsonschema import Draft202012Validator

import manifest_platform
from manifest_platform.config import Config, ConfigError, load
from manifest_platform.orchestration.scaffolder import DatasetScaffolder, DatasetScaffoldParams

OWN = """
import dagster as dg

class Own(dg.ConfigurableResource):
    pass

@dg.asset
def numbers() -> int:
    return 1

@dg.asset
def doubled(numbers: int) -> int:
    return 2 * numbers

@dg.asset(
    key=["shop", "page_views"],
    ins={"events": dg.AssetIn(["shop", "shredded"], metadata={"table": "events"})},
    partitions_def=dg.DynamicPartitionsDefinition(name="shop_enriched"),
    io_manager_key="manifest_io_manager",
)
def page_views(events):
    return events

@dg.definitions
def defs():
    mine = {name: Own() for name in ("manifest", "spark", "warehouse")}
    resources = {"io_manager": dg.mem_io_manager, **mine}
    return dg.Definitions([numbers, doubled, page_views], resources=resources, executor=dg.multiprocess_executor)
"""


DEFINITIONS = """
from pathlib import Path

import dagster as dg

@dg.definitions
def defs():
    return dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
"""


class Project:
    """A project as `create-dagster` creates it, with resources, an executor and assets of its own."""

    def __init__(self, root: Path, module: str) -> None:
        self.root, self.module, self.defs = root, module, root / "src" / module / "defs"
        self.defs.mkdir(parents=True)
        named = f'root_module = "{module}"\n'
        (root / "pyproject.toml").write_text(f'[tool.dg]\ndirectory_type = "project"\n[tool.dg.project]\n{named}')
        for folder in (self.defs, self.defs.parent):
            (folder / "__init__.py").touch()
        (self.defs / "own.py").write_text(OWN)
        (self.defs.parent / "definitions.py").write_text(DEFINITIONS)

    def scaffold(self, name: str, **params: Any) -> Path:
        folder = self.defs / name
        request = dg.ScaffoldRequest(
            "manifest_platform.Dataset", folder, "yaml", self.root, DatasetScaffoldParams.model_validate(params)
        )
        DatasetScaffolder().scaffold(request)
        return folder / "defs.yaml"

    def load(self) -> dg.Definitions:
        return dg.load_from_defs_folder(path_within_project=self.defs)


Made = Callable[[], Project]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Made]:
    modules: list[str] = []

    def make() -> Project:
        modules.append(f"project_{os.getpid()}_{abs(hash(tmp_path))}")
        monkeypatch.syspath_prepend(str(tmp_path / "src"))
        return Project(tmp_path, modules[-1])

    yield make
    for name in [name for name in sys.modules if name.partition(".")[0] in modules]:
        del sys.modules[name]


def _names(found: Any) -> list[str]:
    return sorted(one.name for one in found or ())


def test_a_scaffolded_component_loads_beside_a_projects_own_definitions(made: Made) -> None:
    """There are two components with two configurations, and an IO manager, resources and an executor of the project."""
    project = made()
    project.scaffold("shop")
    project.scaffold("vaults/west", source="veeva")
    project.scaffold("work", source="items")
    defs = project.load()
    dg.Definitions.validate_loadable(defs)
    keys = {key.to_user_string() for key in defs.resolve_asset_graph().get_all_asset_keys()}
    assert keys > {"shop/enriched_runs", "shop/warehouse", "west/incr/warehouse", "numbers", "shop/page_views"}
    assert {"shop_housekeeping", "vaults_west_housekeeping", "work_housekeeping"} < set(_names(defs.jobs))
    sensors = set(_names(defs.sensors))
    assert {f"{name}_{kind}_sensor" for name in ("shop", "vaults_west") for kind in ("failure", "cancel", "lost_run")} < sensors
    assert set(defs.resources or ()) == {"io_manager", "manifest", "spark", "warehouse", "manifest_io_manager"}
    with dg.DagsterInstance.ephemeral() as instance:
        own = [dg.AssetKey("numbers"), dg.AssetKey("doubled")]
        job = defs.resolve_implicit_global_asset_job_def()
        assert job.execute_in_process(instance=instance, asset_selection=own).output_for_node("doubled") == 2


def test_the_command_line_reads_the_same_file(made: Made) -> None:
    project = made()
    file = project.scaffold("shop", landing="landed", schemas="https://schemas.example/api")
    config = load(file)
    assert config.datasets["shop"].landing.root == str(project.root / "landed"), "from the project's root"
    assert config.manifest.store == f"sqlite:///{project.root}/data/shop/manifest.db"
    assert (project.root / "data/.gitignore").read_text() == "*\n"


def test_a_configuration_file_may_be_named_and_some_of_its_datasets(made: Made) -> None:
    project = made()
    schemas = [str(project.root)]
    data = {name: {"landing": {"root": f"{name}/in"}, "shred": {"output": f"{name}/out", "schemas": schemas}} for name in "ab"}
    (project.root / "platform.yaml").write_text(yaml.safe_dump({"datasets": data}))
    file = project.scaffold("both", config="platform.yaml")
    assert list(load(file).datasets) == ["a", "b"]
    assert load(file).datasets["a"].landing.root == str(project.root / "a/in"), "as in the file that is named"
    file.write_text(file.read_text().replace("# datasets: [both]", "datasets: [b]"))
    assert list(load(file).datasets) == ["b"]
    (project.defs / "own.py").unlink()
    keys = {key.path[0] for key in project.load().resolve_asset_graph().get_all_asset_keys()}
    assert keys == {"b"}
    file.write_text(file.read_text().replace("[b]", "[c]"))
    with pytest.raises(ConfigError, match=r"attributes.datasets: 'c': allowed: a, b"):
        load(file)


def test_a_translation_changes_keys_groups_and_tags(made: Made) -> None:
    project = made()
    file = project.scaffold("shop")
    translation = {
        "key_prefix": "lake",
        "group_name": "{{ dataset }}_{{ stage }}",
        "tags": {"domain": "web"},
        "owners": ["team:x"],
    }
    whole = yaml.safe_load(file.read_text())
    whole["attributes"]["translation"] = translation
    file.write_text(yaml.safe_dump(whole))
    (project.defs / "own.py").unlink()
    specs = {spec.key.to_user_string(): spec for spec in project.load().resolve_all_asset_specs()}
    assert specs.keys() == {f"lake/shop/{name}" for name in ("enriched_runs", "shredded", "warehouse", "overview")}
    spec = specs["lake/shop/warehouse"]
    assert (spec.group_name, spec.tags["domain"], spec.owners) == ("shop_loaded", "web", ["team:x"])
    assert [dep.asset_key.to_user_string() for dep in spec.deps] == ["lake/shop/shredded"]


def test_a_wrong_value_is_reported_with_its_line(made: Made) -> None:
    project = made()
    file = project.scaffold("shop")
    text = (
        file.read_text()
        .replace("owner: team:data", "owner: nobody")
        .replace("      shred:", "        look_back: 3\n      shred:")
    )
    file.write_text(text)
    lines = {
        said: number for number, line in enumerate(text.splitlines(), 1) for said in ("owner", "look_back") if said in line
    }
    with pytest.raises(ConfigError) as refused:
        load(file)
    assert f"line {lines['owner']}: datasets.shop.owner: 'nobody': " in str(refused.value)
    assert f"line {lines['look_back']}: datasets.shop.landing.look_back: unknown key; allowed here: " in str(refused.value)
    with pytest.raises(ComponentTreeException) as broken:
        project.load()
    assert "datasets.shop.owner" in str(broken.value.__cause__)


def test_a_dataset_is_allowed_once_in_a_code_location(made: Made) -> None:
    project = made()
    file = project.scaffold("shop")
    (project.defs / "again").mkdir()
    (project.defs / "again/defs.yaml").write_text(file.read_text())
    with pytest.raises(ComponentTreeException) as broken:
        project.load()
    assert "dataset 'shop' is in " in str(broken.value.__cause__)
    assert "Define a dataset once in a code location" in str(broken.value.__cause__)


def test_templates_of_dagsters_and_of_the_platforms_are_read(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    project = made()
    file = project.scaffold("shop")
    monkeypatch.setenv("THE_OWNER", "team:web")
    plain = file.read_text()
    file.write_text(plain.replace("owner: team:data", "owner: '{{ env.THE_OWNER }}'"))
    assert load(file).datasets["shop"].owner == "team:web"
    file.write_text(plain.replace("owner: team:data", "owner: \"{{ env('NOT_SET', 'team:none') }}\""))
    assert load(file).datasets["shop"].owner == "team:none"
    file.write_text(plain.replace("root: data/shop", "root: '{{ context.project_root }}/elsewhere' #"))
    assert load(file).datasets["shop"].landing.root == str(project.root / "elsewhere")
    for wrong, said in (("{{ env.NOT_SET }}", "is not set in the environment"), ("{{ secrets.x }}", "allowed: {{ env.NAME }}")):
        file.write_text(plain.replace("owner: team:data", f"owner: '{wrong}'"))
        with pytest.raises(ConfigError) as refused:
            load(file)
        assert "datasets.shop.owner" in str(refused.value) and said in str(refused.value)


# For tools


def test_the_attributes_are_those_of_the_configuration(made: Made) -> None:
    schema = manifest_platform.Dataset.get_model_cls().model_json_schema()
    assert schema["properties"].keys() - {"config", "translation"} == Config.model_fields.keys()
    validator = Draft202012Validator(schema)
    [example] = schema["examples"]
    file = made().scaffold("shop")
    for right in (example, yaml.safe_load(file.read_text())["attributes"], {"config": "x.yaml", "datasets": ["a"]}):
        assert not list(validator.iter_errors(right))
    example["datasets"]["shop"]["shred"]["batch"] = "${BATCH}"
    assert not list(validator.iter_errors(example)), "a template stands for a number"
    example["datasets"]["shop"]["shred"]["batch"] = 1000
    example["warehouse"]["kind"] = "oracle"
    wrong = {".".join(map(str, one.path)): one.message for one in validator.iter_errors(example)}
    assert wrong == {
        "datasets.shop.shred.batch": "1000 is greater than the maximum of 90",
        "warehouse.kind": wrong["warehouse.kind"],
    }
    assert wrong["warehouse.kind"].startswith("'oracle' is not one of")


def test_the_docs_have_a_description_and_owners() -> None:
    spec = manifest_platform.Dataset.get_spec()
    assert spec.owners and spec.tags and "asset" in spec.produces
    assert str(manifest_platform.Dataset.get_description()).startswith("Directories that land in object storage become")
    assert "Dataset" in dir(manifest_platform), "where Dagster looks for components"


@pytest.mark.long
def test_dg_scaffolds_lists_and_checks_the_component(tmp_path: Path) -> None:
    project = Project(tmp_path, "by_hand")
    scripts = Path(sys.executable).parent
    environment = {
        **os.environ,
        "PYTHONPATH": str(tmp_path / "src"),
        "PATH": f"{scripts}:{os.environ['PATH']}",
        "NO_COLOR": "1",
    }

    def run(*command: str) -> str:
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("dg", "scaffold", "defs", "manifest_platform.Dataset", "shop", "--landing", "landed")
    run("dg", "scaffold", "defs", "manifest_platform.Dataset", "west", "--source", "veeva")
    assert "manifest_platform.Dataset" in run("dg", "list", "components", "--json")
    run("dg", "check", "yaml")
    assert "All definitions loaded successfully" in run("dg", "check", "defs")
    assert "shop/warehouse" in run("dg", "list", "defs", "--json")
    assert "IDLE" in run("manifest-platform", "--config", str(project.defs / "shop/defs.yaml"), "status")
