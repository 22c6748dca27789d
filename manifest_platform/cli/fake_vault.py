"""`fake-vault`: runs a fake Vault for people who have none, to try the platform and its reaction to faults."""

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
    port: Annotated[int, typer.Option(help="Port to listen on, on this machine. 0: any free port.", min=0, max=65535)] = 8787,
    seed: Annotated[int, typer.Option(help="Seed of the invented data: the same seed gives the same data.")] = 1,
    start: Annotated[datetime, typer.Option(help="Time at which the vault's history begins, UTC.", formats=_TIMES)] = datetime(
        2026, 1, 1
    ),
    days: Annotated[int, typer.Option(help="Number of days that have passed by the server's clock.", min=0)] = 1,
    full_hour: Annotated[int, typer.Option(help="Hour of the daily snapshot and log, UTC.", min=0, max=23)] = 0,
    speed: Annotated[
        float, typer.Option(help="Speed of the server's clock. 60: a minute in each second; 0: the clock stops.", min=0)
    ] = 0,
    rows: Annotated[int, typer.Option(help="Number of rows that each object begins with.", min=1)] = 20,
    part_bytes: Annotated[int, typer.Option(help="Size of the parts of an archive, in bytes.", min=1)] = 1_000_000_000,
) -> int:
    """Runs a fake Vault with invented data on this machine until Ctrl-C. Needs no configuration.

    It answers Vault's calls for login and Direct Data. Set its clock and inject faults with requests to /fake/; the command
    prints examples.
    """
    from manifest_platform.fake_vault import FakeVault, Simulation, VaultSettings, schema_changes

    begin = start.replace(tzinfo=UTC)
    simulation = Simulation(seed, begin, rows, script=schema_changes())
    now = begin + timedelta(days=days, hours=full_hour + 1)  # a snapshot is published an hour after its stop time
    settings = VaultSettings(port, speed, full_hour_utc=full_hour, part_bytes=part_bytes)
    try:
        with FakeVault(simulation, now, settings) as vault:
            _tell(vault, as_json(context))
            _wait()
    except KeyboardInterrupt:
        return Exit.DONE
    except OSError as error:
        raise WrongUse(f"cannot listen on port {port} ({error.strerror}): choose another with --port") from error
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
            "clock +15m": f"{send}/clock -d '{{\"minutes\": 15}}'",
            "add a fault": f'{send}/faults -d \'{{"kind": "status", "times": 3}}\'',
            "end faults": f"{send}/faults -X DELETE",
        }
    )
