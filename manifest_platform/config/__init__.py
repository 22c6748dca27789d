"""The typed configuration that the command line and Dagster share.

Belongs here: reading a file, combining its parts, checks across parts, and the reference page. Does not belong here: settings
of a plug-in, which the plug-in declares.

    config           the model of all settings
    reading          reads a file, with values from the environment; reports all problems together
    component_file   a Dagster component's `defs.yaml` as a configuration
    apart, present   checks that places do not overlap, and that they exist or can be created
    reference        the reference page, and the JSON Schema for editors
"""

from manifest_platform.config.config import Config, ConfigError, ManifestConfig
from manifest_platform.config.reading import DEFAULT_FILE, VARIABLE, load

__all__ = ["DEFAULT_FILE", "VARIABLE", "Config", "ConfigError", "ManifestConfig", "load"]
