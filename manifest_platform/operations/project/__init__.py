"""A user's own project, written by `init`: the configuration, the Dagster definitions, and the files around them.

Existing files are never changed.
"""

from manifest_platform.operations.project.plan import Plan, Refused, Written, plan, write
from manifest_platform.operations.project.wanted import Wanted, name_of

__all__ = ["Plan", "Refused", "Wanted", "Written", "name_of", "plan", "write"]
