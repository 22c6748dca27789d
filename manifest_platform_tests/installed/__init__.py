"""What users install: the wheel, in environments outside the repository."""

from pathlib import Path


def walk_file() -> str:
    """The program that calls every command of an environment's package."""
    return str(Path(__file__).with_name("walk.py"))
