"""The one typed configuration, for the command line and Dagster alike."""

from manifest_platform.config.config import Config, ConfigError, ManifestConfig
from manifest_platform.config.reading import DEFAULT_FILE, VARIABLE, load

__all__ = ["DEFAULT_FILE", "VARIABLE", "Config", "ConfigError", "ManifestConfig", "load"]
