"""The answer of `--version`: the releases of the platform, of Python, and of the installed extras."""

from __future__ import annotations

import platform

from manifest_platform import __version__, extras
from manifest_platform.cli.output import print_json, say


def print_version(as_json: bool) -> None:
    """Prints the releases, as text or JSON."""
    found = extras.installed()
    if as_json:
        print_json({"version": __version__, "python": platform.python_version(), "extras": found})
        return
    say(f"manifest-platform {__version__}, Python {platform.python_version()}")
    for extra, packages in found.items():
        told = ", ".join(f"{name} {release}" for name, release in packages.items())
        say(f"  {extra:<11} {told or 'not installed'}")
