"""The component `manifest_platform.Dataset`: datasets in a user's own Dagster project, defined by a `defs.yaml`.

The command line reads the same `defs.yaml`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import dagster as dg
from dagster.components.core.defs_module import find_defs_or_component_yaml
from dagster.components.resolved.base import derive_model_type
from dagster.components.utils.translation import TranslationFn, TranslationFnResolver
from pydantic import BaseModel

from manifest_platform.config import ConfigError
from manifest_platform.orchestration.build import build_defs
from manifest_platform.orchestration.component_schema import of_attributes
from manifest_platform.orchestration.io_manager import ManifestIOManager
from manifest_platform.orchestration.resources import ManifestResource
from manifest_platform.orchestration.scaffolder import DatasetScaffolder, example
from manifest_platform.orchestration.translator import DatasetProps, DatasetTranslator

_SHARED = "_manifest_platform"
"""The attribute of a project's component tree that holds what all our components share."""

_Part = Annotated[Any, dg.Resolver.passthrough()]
"""A part of the configuration, unread: the configuration's own reader reads it, with its templates."""


def _scope(props: DatasetProps) -> Mapping[str, Any]:
    return {
        "props": props,
        "dataset": props.dataset,
        "stage": str(props.kind),
        "feed": props.feed,
        "table": props.table,
        "target": props.target,
    }


@dg.scaffold_with(DatasetScaffolder)
@dataclass
class Dataset(dg.Component, dg.Resolvable):
    """Directories that land in object storage become ordered, exactly-once warehouse tables.

    Defines the assets, checks, jobs and sensors of one or more datasets. The attributes are the keys of a configuration file
    (`datasets`, `manifest`, `warehouse`, …). Instead of them, `config` may name such a file, and `datasets` some of its
    datasets.

    `translation` changes the specs of the assets. Its expressions may use `dataset`, `stage` (landed, shredded, loaded, table,
    merged, published, overview), `feed`, `table`, `target`, `props` and `spec`.

    `dg scaffold defs manifest_platform.Dataset shop --landing s3://bucket/enriched` writes a component that loads immediately.
    Relative paths are relative to the project's root. The command line reads the same file:
    `manifest-platform --config PATH/defs.yaml status`.
    """

    config: Annotated[
        str | None,
        dg.Resolver.passthrough(
            description="path of a configuration file, relative to this file; replaces the other keys",
            examples=["../../manifest_platform.yaml"],
        ),
    ] = None
    datasets: _Part = None
    deployment: _Part = None
    manifest: _Part = None
    warehouse: _Part = None
    lease: _Part = None
    limits: _Part = None
    drain: _Part = None
    dagster: _Part = None
    housekeeping: _Part = None
    files: _Part = None
    spark: _Part = None
    translation: Annotated[TranslationFn[DatasetProps] | None, TranslationFnResolver[DatasetProps](_scope)] = None

    @classmethod
    def model(cls) -> type[BaseModel]:
        """Returns the model of the attributes, with the configuration's own schema."""
        derived = derive_model_type(cls)

        class Attributes(derived):  # ty: ignore[unsupported-base]  # made by Dagster
            @classmethod
            def model_json_schema(cls, *_arguments: Any, **_options: Any) -> dict[str, Any]:
                return of_attributes(derived.model_json_schema(), example())

        return Attributes

    @classmethod
    def get_spec(cls) -> dg.ComponentTypeSpec:
        """Returns the component's owners, tags and kinds of definitions, for Dagster's documentation pages."""
        return dg.ComponentTypeSpec(
            owners=["team:manifest-platform"],
            tags=["ingestion", "spark", "warehouse", "exactly-once"],
            produces=["asset", "asset_check", "job", "schedule", "sensor", "resource"],
        )

    def get_asset_spec(self, props: DatasetProps) -> dg.AssetSpec:
        """Returns the spec of an asset, before `translation`. A subclass may override it and call this method from there."""
        return DatasetTranslator().get_asset_spec(props)

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Returns the definitions of the datasets. Raises ConfigError."""
        file = self._file(context)
        shared: _Shared = vars(context.component_tree).setdefault(_SHARED, _Shared(ManifestIOManager(), {}))
        manifest = ManifestResource(config_file=str(file))
        shared.claim(manifest.configuration().datasets, file)
        return build_defs(
            manifest=manifest,
            translator=_Translator(self),
            executor=None,
            name="_".join(file.parent.relative_to(context.defs_module_path).parts) or None,
            io_manager=shared.io_manager,
        )

    def _file(self, context: dg.ComponentLoadContext) -> Path:
        """Returns the configuration file: the component's `defs.yaml`, or the file that a component made by Python names."""
        folder = context.path if context.path.is_dir() else context.path.parent
        if found := find_defs_or_component_yaml(folder):
            return found.absolute()
        if self.config is None or self.datasets is not None:
            raise ConfigError(f"{context.path}: a Dataset made by Python takes only `config`, the path of a file")
        return (folder / self.config).absolute()


@dataclass
class _Shared:
    """The parts that all components of a project share: the one IO manager, and the file of each dataset."""

    io_manager: ManifestIOManager
    files: dict[str, Path]

    def claim(self, datasets: Mapping[str, Any], file: Path) -> None:
        """Records the file of each dataset. Raises ConfigError if another file has the dataset already."""
        for dataset in datasets:
            other = self.files.setdefault(dataset, file)
            if other != file:
                raise ConfigError(f"{file}: dataset {dataset!r} is in {other} too. Define a dataset once in a code location")


class _Translator(DatasetTranslator):
    """A translator that applies the component's `get_asset_spec`, then its `translation`."""

    def __init__(self, component: Dataset) -> None:
        self._component = component

    def get_asset_spec(self, props: DatasetProps) -> dg.AssetSpec:
        spec, translation = self._component.get_asset_spec(props), self._component.translation
        return translation(spec, props) if translation else spec
