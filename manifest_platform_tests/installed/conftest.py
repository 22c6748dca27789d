"""The wheel, and an environment with all of it, for every module here."""

from __future__ import annotations

from pathlib import Path

import pytest

from manifest_platform_tests.installed.environments import Environment, built


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel."""
    return built(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="session")
def everything(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The wheel with all extras."""
    environment = Environment.made(tmp_path_factory.mktemp("all") / "venv")
    environment.install(f"manifest-platform[all] @ {wheel.as_uri()}")
    return environment
