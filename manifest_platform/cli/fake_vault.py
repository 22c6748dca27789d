"""The command that runs a fake Vault, for people who have none: to try the platform out, and to see what faults do to it."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from manifest_platform.cli.app import WrongUse, as_json
from manifest_platform.cli.exits import Exit
from manifest_platform.cli.output import print_json, print_lines, say

if TYPE_CHECKING:
    from manifest_platform.fake_vault import FakeVault

_TIMES = ["%Y-%m-%dT%H:%MZ", "%Y-%m-%d"]


def fake_vault(
    context: typer.Context,
    port: Annotated[int, typer.Option(help="Where it listens on this machine; 0: on a free port.", min=0, max=65535)] = 8787,
    seed: Annotated[int, typer.Option(help="What its data follow from.")] = 1,
    start: Annotated[datetime, typer.Option(help="When its history begins, UTC.", formats=_TIMES)] = datetime(2026, 1, 1),
    days: Annotated[int, typer.Option(help="How many days of it are over by the server's clock.", min=0)] = 1,
    full_hour: Annotated[int, typer.Option(help="The hour, UTC, of the daily snapshot and log.", min=0, max=23)] = 0,
    speed: Annotated[
        float, typer.Option(help="How fast the server's clock runs: 60: a minute a second; 0: it stands.", min=0)
    ] = 0,
    rows: Annotated[int, typer.Option(help="How many rows each object begins with.", min=1)] = 20,
    part_bytes: Annotated[int, typer.Option(help="How long the parts of an archive are.", min=1)] = 1_000_000_000,
) -> int:
    """Runs a Vault with invented data on this machine until Ctrl-C. Needs no configuration.

    It answers Vault's own calls for login and Direct Data. Its clock and its faults are set below /fake/, as it says.
    """
    from manifest_platform.fake_vault import FakeVault, Simulation, VaultSettings, schema_changes

    begin = start.replace(tzinfo=UTC)
    simulation = Simulation(seed, begin, rows, script=schema_changes())
    now = begin + timedelta(days=days, hours=full_hour + 1)  # an hour after its stop a snapshot is there
    settings = VaultSettings(port, speed, full_hour_utc=full_hour, part_bytes=part_bytes)
    try:
        with FakeVault(simulation, now, settings) as vault:
            _tell(vault, as_json(context))
            _wait()
    except KeyboardInterrupt:
        return Exit.DONE
    except OSError as error:
        raise WrongUse(f"port {port} of this machine cannot be had ({error.strerror}): give another with --port") from error
    return Exit.DONE


def _wait() -> None:
    threading.Event().wait()


def _tell(vault: FakeVault, in_json: bool) -> None:
    settings = vault.settings
    told = {"url": vault.url, "vault": settings.vault_id, "user": settings.user, "password": settings.password}
    if in_json:
        print_json({**told, "clock": vault.now})
        return
    say("A fake Vault runs until Ctrl-C.")
    send = f"curl {vault.url}/fake"
    print_lines(
        {name: str(value) for name, value in told.items()}
        | {
            "clock": f"{vault.now:%Y-%m-%dT%H:%MZ}",
            "go on": f"{send}/clock -d '{{\"minutes\": 15}}'",
            "a fault": f'{send}/faults -d \'{{"kind": "status", "times": 3}}\'',
            "heal": f"{send}/faults -X DELETE",
        }
    )
