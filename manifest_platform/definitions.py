"""The Dagster code location: every dataset of the configuration file ($MANIFEST_PLATFORM_CONFIG or manifest_platform.yaml)."""

import dagster as dg

from manifest_platform.orchestration.build import build_defs


@dg.definitions
def defs() -> dg.Definitions:
    """Returns all definitions of the code location."""
    return build_defs()
