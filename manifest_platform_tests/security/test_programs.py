"""A program of a step gets no secret of the platform's, and none of what it says of one is kept."""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from manifest_platform import config, masking
from manifest_platform.masking import MASK
from manifest_platform.pipeline.program import LINE_CHARACTERS, Program, passed_on
from manifest_platform_tests.cli.test_commands import RUNS, Shop
from manifest_platform_tests.cli.test_run import COUNT, records, run, shop

__all__ = ["run", "shop"]
CANARY = "canary/7Zq+1"
SECRETS = ("VAULT_PASSWORD", "PGPASSWORD", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "IGLU_APIKEY", "HTTPS_PROXY")


@pytest.fixture(autouse=True)
def canary(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    masking.forget()
    for name in SECRETS:
        monkeypatch.setenv(name, CANARY)
    assert masking.secret("VAULT_PASSWORD") == CANARY
    yield
    masking.forget()


def test_only_what_is_safe_and_what_is_named_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LC_ALL", "TZ", "MANIFEST_PLATFORM_DB_PASSWORD", "AWSOME"):
        monkeypatch.setenv(name, "invented")
    assert {"PATH", "HOME", "LC_ALL", "TZ"} <= passed_on([]).keys()
    assert not {*SECRETS, "MANIFEST_PLATFORM_DB_PASSWORD"} & passed_on([]).keys()
    named = passed_on(["AWS_*", "IGLU_APIKEY"])
    assert {"AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "IGLU_APIKEY"} <= named.keys()
    assert not {"VAULT_PASSWORD", "PGPASSWORD", "AWSOME"} & named.keys()


def seen(shop: Shop, run: Any, *options: str) -> str:
    """The environment of a program, by its own account."""
    file = shop.file.with_name("seen")
    assert run("run", "--application", COUNT, *options, "--", "sh", "-c", f"env > {file}")[0] == 0
    return file.read_text()


def test_a_program_gets_no_secret_that_is_not_named(shop: Shop, run: Any) -> None:
    told = seen(shop, run)
    assert CANARY not in told
    assert f"{config.VARIABLE}={shop.file}" in told and "MANIFEST_PLATFORM_ITEM=" in told


def test_a_program_gets_what_the_command_line_and_the_configuration_name(shop: Shop, run: Any) -> None:
    assert [line for line in seen(shop, run, "--env", "PGPASSWORD").split() if CANARY in line] == [f"PGPASSWORD={CANARY}"]
    shop.file.write_text(shop.file.read_text().replace("name: count,", "name: count, environment: ['AWS_*'],"))
    given = {line.partition("=")[0] for line in seen(shop, run).split() if CANARY in line}
    assert given == {"AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"}


@pytest.mark.parametrize("name", ["NOWHERE_TO_BE_FOUND", f"PGPASSWORD={CANARY}", "*", "A*B"])
def test_a_variable_that_cannot_be_meant_is_refused(shop: Shop, run: Any, name: str) -> None:
    code, _, err = run("run", "--application", COUNT, "--env", name, "--", "true")
    assert (code, CANARY in err) == (2, False)
    assert "--env" in err


def test_an_environment_that_is_none_is_refused_by_its_key(shop: Shop, run: Any) -> None:
    shop.file.write_text(shop.file.read_text().replace("name: count,", "name: count, environment: ['A B'],"))
    code, _, err = run("status")
    assert (code, "steps.0.environment.0: 'A B'" in err) == (2, True)


def test_what_is_kept_of_a_programs_stderr_has_no_secret(shop: Shop, run: Any) -> None:
    written = [CANARY, quote(CANARY, safe=""), base64.b64encode(f"user:{CANARY}".encode()).decode()]
    script = "; ".join(f"echo 'got {text}' >&2" for text in written)
    code, out, err = run("run", "--application", COUNT, "--json", "--", "sh", "-c", f"{script}; exit 1")
    kept = str(records(shop, RUNS[0], COUNT)[-1].data)
    for text in written:
        assert text not in out + err + kept
    assert (code, kept.count(f"got {MASK}"), err.count(f"got {MASK}")) == (1, 3, 3)


@pytest.mark.parametrize("end", ["", "\n"])
def test_a_secret_across_the_pieces_of_a_line_without_end_is_masked(end: str) -> None:
    masking.keep(CANARY)
    before = LINE_CHARACTERS - len(CANARY) // 2
    script = f"import sys; sys.stderr.write('-' * {before} + {CANARY!r} + ' and more' + {end!r})"
    program = Program([sys.executable, "-c", script], dict(os.environ))
    assert program.wait() == 0
    assert program.errors == "-" * before + f"{MASK} and more"
