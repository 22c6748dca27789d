"""The one typed configuration, for the command line and Dagster alike."""

from manifest_platform.config.config import (
    DEFAULT_FILE,
    STORES,
    VARIABLE,
    Config,
    ConfigError,
    DatasetConfig,
    EmbeddedCatalogConfig,
    GlueCatalogConfig,
    ManifestConfig,
    MergeConfig,
    MergeTableConfig,
    StepConfig,
    load,
)

__all__ = [
    "DEFAULT_FILE",
    "STORES",
    "VARIABLE",
    "Config",
    "ConfigError",
    "DatasetConfig",
    "EmbeddedCatalogConfig",
    "GlueCatalogConfig",
    "ManifestConfig",
    "MergeConfig",
    "MergeTableConfig",
    "StepConfig",
    "load",
]
