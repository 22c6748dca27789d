"""The restore drills of the page on an AWS account, run as the page has them: DynamoDB Local, PostgreSQL as the warehouse.

DynamoDB Local has no recovery to a point in time, so the restored table is a copy of the rows as they were then.
"""

from __future__ import annotations

import re
import shlex
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from manifest_platform.cli import main
from manifest_platform.demo.dynamodb import DynamoDbLocal
from manifest_platform.manifest.stores.dynamodb.table import create_table
from manifest_platform.spark.place import Place
from manifest_platform_tests.pipeline.following import SessionHere
from manifest_platform_tests.pipeline.shop import NAME, Shop, run_names
from manifest_platform_tests.servers.postgres import Postgres
from manifest_platform_tests.servers.stores import copied
from manifest_platform_tests.servers.warehouses import DatabasePlace

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "aws-account.md").read_text()
UNDERSTOOD = (0, 1, 3, 4)


def drill(section: str) -> list[list[str]]:
    """The commands of the platform that a section of the page tells an operator to run."""
    [text] = re.findall(rf"^## Restore drill: {section}\n(.*?)^## ", PAGE, re.MULTILINE | re.DOTALL)
    lines = re.findall(r"^manifest-platform (.+)$", "\n".join(re.findall(r"```bash\n(.*?)```", text, re.DOTALL)), re.MULTILINE)
    assert lines
    return [shlex.split(line) for line in lines]


def run(shop: Shop, *command: str, codes: tuple[int, ...] = (0,)) -> None:
    """Runs a command, whose Spark jobs run in this process."""
    code = main(["--config", str(shop.config_file), *command])
    assert code in codes, command


@pytest.fixture
def shop(tmp_path: Path, postgres_server: Postgres, dynamodb: DynamoDbLocal, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """A shop whose first run is loaded."""
    monkeypatch.setattr(Place, "session", lambda *_: SessionHere())
    place = DatabasePlace(postgres_server, tmp_path)
    made = Shop(tmp_path, place, manifest={"store": table(dynamodb)})
    made.write(0)
    run(made, "drain")
    yield made
    place.remove()


def table(server: DynamoDbLocal) -> str:
    """A new table, as a URL of the manifest's store."""
    url = server.store(f"drill-{uuid.uuid4().hex[:8]}")
    create_table(url)
    return url


def test_a_manifest_that_was_set_back_goes_on(shop: Shop, dynamodb: DynamoDbLocal) -> None:
    settings = yaml.safe_load(shop.config_file.read_text())
    restored = table(dynamodb)
    copied(settings["manifest"]["store"], restored, NAME)
    shop.write(1, 2)
    run(shop, "drain")

    settings["manifest"]["store"] = restored
    shop.config_file.write_text(yaml.safe_dump(settings))
    commands = drill("the manifest")
    assert ["doctor", "--repair"] in commands
    for command in commands:
        run(shop, *command, codes=UNDERSTOOD)
    shop.write(3)
    run(shop, "drain")
    assert shop.seen.runs == run_names(0, 1, 2, 3) and shop.doubled_events == []
    run(shop, "doctor")


def test_a_warehouse_that_was_set_back_is_filled_again(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    shop.place.save("backup")
    shop.write(1, 2)
    run(shop, "drain")

    shop.place.restore("backup")
    assert shop.seen.runs == run_names(0)
    shop.write(3)
    run(shop, "drain", codes=(3,))
    assert "warehouse reconcile" in capsys.readouterr().out, "nothing is loaded until somebody decides"
    commands = drill("the warehouse")
    assert ["warehouse", "reconcile"] in commands
    for command in commands:
        run(shop, *command)
    run(shop, "drain")
    assert shop.seen.runs == run_names(0, 1, 2, 3) and shop.doubled_events == []
    run(shop, "doctor")
