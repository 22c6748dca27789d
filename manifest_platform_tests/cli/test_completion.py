"""What shells complete: asked as bash asks, with the words that it has cut."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from manifest_platform import config
from manifest_platform.cli import main
from manifest_platform.cli.shells import VARIABLE as COMPLETE_VARIABLE
from manifest_platform_tests.cli.test_commands import RUNS, Shop


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """The completions that a shell gets for the last word."""

    def _offered(*words: str, shell: str = "bash") -> list[str]:
        capsys.readouterr()
        with monkeypatch.context() as environment:
            environment.setenv(COMPLETE_VARIABLE, f"{shell}_complete")
            environment.setenv("COMP_WORDS", "\n".join(["manifest-platform", *words]))
            environment.setenv("COMP_CWORD", str(len(words)) if shell == "bash" else words[-1])
            assert main([]) == 0
        told = capsys.readouterr()
        assert told.err == ""
        return [line.partition(",")[2].partition("\t")[0] for line in told.out.splitlines()]

    return _offered


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    shop = Shop(tmp_path)
    monkeypatch.setenv(config.VARIABLE, str(shop.file))
    shop.land(*RUNS)
    assert main(["discover"]) == 0
    return shop


def test_commands_and_options_are_completed_though_none_is_imported(offered) -> None:
    assert offered("sta") == ["status"]
    assert {"create", "check", "upgrade"} <= set(offered("store", ""))
    assert offered("store", "up") == ["upgrade"]
    assert "--dry-run" in offered("resolve", "--d")
    assert offered("completion", "nothing") == []


def test_datasets_are_those_of_the_configuration(offered, shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [name] = config.load().datasets
    assert offered("status", "--dataset", "") == [name]
    assert offered("--dataset", name[:2]) == [name]
    assert offered("status", "--dataset", "no") == []
    monkeypatch.delenv(config.VARIABLE)
    assert offered("status", "--config", str(shop.file), "--dataset", "") == [name]
    monkeypatch.chdir(tmp_path.parent)
    assert offered("status", "--dataset", "") == []  # there is no configuration, and no error


def test_items_are_completed_in_the_pieces_that_bash_makes_of_them(offered, shop: Shop) -> None:
    times = [name.removeprefix("run=") for name in reversed(RUNS)]
    assert offered("history", "") == [*reversed(RUNS)]
    assert offered("resolve", "ru") == [*reversed(RUNS)]
    assert offered("history", "run", "=") == times
    assert offered("history", "run", "=", times[0][:-5]) == times
    assert offered("history", "run", "=", times[0]) == times[:1]
    assert offered("resolve", "run", "=", times[1], "run", "=", times[0]) == times[:1]
    assert offered("explain", "other") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert f"{COMPLETE_VARIABLE}={shell}_complete" in script
    assert main(["completion", shell, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["script"].strip() == script.strip()


@pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash")
def test_bash_completes_with_its_script(shop: Shop) -> None:
    words = ("manifest-platform", "explain", "run", "=")
    program = f"""
PATH={Path(sys.executable).parent}:$PATH
eval "$(manifest-platform completion bash)"
compopt() {{ :; }}
COMP_WORDS=({" ".join(words)}) COMP_CWORD={len(words) - 1}
_manifest_platform_completion manifest-platform
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == [name.removeprefix("run=") for name in reversed(RUNS)]
