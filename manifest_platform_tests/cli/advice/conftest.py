from __future__ import annotations

from manifest_platform_tests.cli.advice.terminal import terminal

__all__ = ["terminal"]
