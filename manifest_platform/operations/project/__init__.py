"""A project of a user's own: its configuration, its place in Dagster, and what stands around them, written once.

What is there already stays as it is.
"""

from manifest_platform.operations.project.plan import Plan, Refused, Written, plan, write
from manifest_platform.operations.project.wanted import Wanted, name_of

__all__ = ["Plan", "Refused", "Wanted", "Written", "name_of", "plan", "write"]
