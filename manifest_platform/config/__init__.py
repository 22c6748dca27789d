"""The typed configuration that the command line and Dagster share.

Belongs here: reading a file, combining its parts, checks across parts, and the reference page. Does not belong here: settings
of a plug-in, which the plug-in declares.
"""

from manifest_platform.config.config import Config, ConfigError, ManifestConfig
from manifest_platform.config.reading import DEFAULT_FILE, VARIABLE, load

__all__ = ["DEFAULT_FILE", "VARIABLE", "Config", "ConfigError", "ManifestConfig", "load"]
