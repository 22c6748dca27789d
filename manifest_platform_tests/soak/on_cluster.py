"""A follower on a cluster, whose every program is killed and whose connections are cut, by a schedule from a seed.

Landing, schemas and output are in S3, the manifest is in DynamoDB, the warehouse is PostgreSQL, and Spark computes on two
workers behind a Connect server. In the end SQL tells: each event once, the runs in order, and no item failed by a death of the
cluster.

As a program (`make soak DEPLOYMENT=cluster MINUTES=10`), it plays and exits with 1 if anything is wrong.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from manifest_platform import storage
from manifest_platform.demo import s3
from manifest_platform.demo.cluster import make_bucket, use
from manifest_platform.demo.dynamodb import dynamodb_local
from manifest_platform.demo.events import SCHEMAS, write_run
from manifest_platform.demo.server import await_port, free_port
from manifest_platform.demo.spark_cluster import SparkCluster
from manifest_platform.manifest.stores.dynamodb.table import create_table
from manifest_platform_tests.pipeline.shop import FIRST, REPOSITORY, STEP, Shop, run_name
from manifest_platform_tests.servers.postgres import Postgres, postgres_at
from manifest_platform_tests.servers.proxy import Chooser, Fault, Proxy, from_on, nothing, proxied
from manifest_platform_tests.servers.warehouses import proxied_place
from manifest_platform_tests.soak import audit
from manifest_platform_tests.soak.program import Played, Told, passing, run
from manifest_platform_tests.soak.supervised import Supervised, processes

BUCKET = "soak"
REST_S = 600
"""The time in which all must be loaded after the last kill. On a busy machine, a Connect server alone starts in a minute."""
SETTINGS = {
    "load": {"late": "quarantine"},
    "lease": {"seconds": 15, "max_attempts": 20},
    "follow": {"listing_seconds": 5},
}
KILLED = ("worker-1", "worker-2", "executor", "connect", "drain", "gateway")
CUT = ("S3", "DynamoDB", "PostgreSQL")
KINDS = {f"{one.partition('-')[0]} killed" for one in KILLED} | {f"{one} cut" for one in CUT}
"""The kinds of faults, as they are counted."""


@dataclass(frozen=True)
class Pace:
    """The seconds between runs that land and between faults, and how long a connection stays cut."""

    land_s: float = 5
    fault_s: float = 12
    cut_s: tuple[float, float] = (0.5, 6)
    events: tuple[int, int] = (20, 200)


@dataclass
class OnCluster:
    """The programs of a deployment, the proxies before its stores, and what was done to them."""

    shop: Shop
    programs: dict[str, Supervised]
    proxies: dict[str, Proxy]
    chance: random.Random
    landed: list[str] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    cut: dict[str, float] = field(default_factory=dict)
    """The stores that nobody reaches now, and when each is reached again."""
    waiting: list[str] = field(default_factory=list)
    """The programs and stores that meet a fault next. Each meets one before any meets another."""

    def play(self, seconds: float, pace: Pace) -> Iterator[float]:
        """Lands runs and makes faults for some seconds; yields the seconds that have passed, about every half."""
        for passed, due in passing(seconds, {"land": pace.land_s, "fault": pace.fault_s}, self.chance):
            if "land" in due:
                self.land(self.chance.randint(*pace.events))
            if "fault" in due and (cut := self.fault()):
                self.cut[cut] = passed + self.chance.uniform(*pace.cut_s)
            for name in [name for name, at in self.cut.items() if at <= passed]:
                self.proxies[name].choose(nothing)
                del self.cut[name]
            yield passed
        for proxy in self.proxies.values():
            proxy.choose(nothing)
        self.cut.clear()

    def land(self, events: int) -> None:
        """Lands the next run in S3 from the producer's own copy. The marker is last, and a producer that fails repeats."""
        number = len(self.landed)
        name, own = run_name(number), self.shop.home / "landing"
        write_run(own, FIRST + number * STEP, events, seed=1)
        files = sorted((own / name).iterdir(), key=lambda file: file.name == "_SUCCESS")
        deadline = time.monotonic() + REST_S
        while time.monotonic() < deadline:
            try:
                for file in files:
                    storage.write_bytes(f"s3://{BUCKET}/landing/{name}/{file.name}", file.read_bytes())
            except OSError:  # the gateway was killed
                time.sleep(0.2)
            else:
                self.landed.append(name)
                return
        raise AssertionError("the gateway does not come back")

    def fault(self) -> str | None:
        """Kills a program, or cuts the way to a store, whose name is returned."""
        if not self.waiting:
            self.waiting = self.chance.sample([*KILLED, *CUT], len(KILLED) + len(CUT))
        what = self.waiting.pop(0)
        if what in CUT:
            fault = self.chance.choice((Fault.REQUEST_LOST, Fault.ANSWER_LOST))
            self.proxies[what].choose(_for_some(fault, self.chance))
            self.faults[f"{what} cut"] += 1
            return what
        if found := self._of(what):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.chance.choice(found), signal.SIGKILL)
                self.faults[f"{what.partition('-')[0]} killed"] += 1
        else:
            self.waiting.append(what)  # there is no executor now
        return None

    def _of(self, what: str) -> list[int]:
        """The processes of a program, or the executors and their Python processes."""
        if what != "executor":
            return [self.programs[what].process.pid]
        workers = {session for name in ("worker-1", "worker-2") for session in self.programs[name].sessions}
        executors = [one for one in processes() if "CoarseGrainedExecutorBackend" in one.what or "pyspark.daemon" in one.what]
        return [one.pid for one in executors if one.session in workers]

    @property
    def starts(self) -> dict[str, int]:
        """The number of starts of each program."""
        return {name: one.starts for name, one in self.programs.items()}

    def rest(self) -> float:
        """Waits until all is loaded; the seconds that it took, or a bit more than REST_S."""
        began = time.monotonic()
        while time.monotonic() - began < REST_S and audit.never_loaded(self.shop, self.landed):
            time.sleep(1)
        return time.monotonic() - began


def _for_some(fault: Fault, chance: random.Random) -> Chooser:
    """All requests meet a fault, or one in two."""
    if chance.random() < 0.5:
        return from_on(1, fault)
    return lambda number, _request: fault if number % 2 else None


@contextmanager
def on_cluster(home: Path, chance: random.Random) -> Generator[OnCluster]:
    """Runs a deployment in a folder until the block ends, each program supervised; nothing of it lives then."""
    data, gateway_port = home / "data", free_port()
    data.mkdir(parents=True)
    direct = s3.S3Server(f"http://127.0.0.1:{gateway_port}").environment
    with ExitStack() as stack:
        programs: dict[str, Supervised] = {}

        def program(name: str, command: list[str | Path], environment: dict[str, str]) -> None:
            programs[name] = Supervised(name, [str(part) for part in command], environment, home)
            stack.callback(programs[name].end)

        program("gateway", s3.command(data, gateway_port), s3.environment())
        database = stack.enter_context(dynamodb_local(home / "dynamodb.log"))
        postgres = Postgres(Path(stack.enter_context(postgres_at(home))))
        place = stack.enter_context(proxied_place(postgres, home))
        gateway = stack.enter_context(_proxied_port(gateway_port))
        proxies = {"S3": gateway, "PostgreSQL": place.proxy}
        proxies["DynamoDB"] = stack.enter_context(_proxied_port(urlsplit(database.endpoint).port or 0))
        through = {**direct, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{gateway.port}"}
        use(direct)
        await_port(programs["gateway"].process, gateway_port, home / "gateway.log", REST_S)
        make_bucket(BUCKET)
        for file in SCHEMAS.rglob("*"):
            if file.is_file():
                storage.write_bytes(f"s3://{BUCKET}/schemas/{file.relative_to(SCHEMAS).as_posix()}", file.read_bytes())
        ours = {"PYTHONPATH": str(REPOSITORY)}  # workers run what the drain runs, in a second checkout, too
        cluster = SparkCluster(home, 2, through | ours, {})
        for one in cluster.programs:
            program(one.name, one.command, cluster.environment)
        conf = home / "connect.conf"
        conf.write_text(f"spark.remote {cluster.remote}\nspark.sql.session.timeZone UTC\n")
        create_table(database.store("soak"))
        endpoint = f"http://127.0.0.1:{proxies['DynamoDB'].port}"
        shop = Shop(
            home / "shop",
            place,
            landing={"root": f"s3://{BUCKET}/landing"},
            shred={"output": f"s3://{BUCKET}/shredded", "schemas": [f"s3://{BUCKET}/schemas"]},
            manifest={"store": f"dynamodb://soak?region={s3.REGION}&endpoint={endpoint}"},
            spark={"conf": str(conf)},
            **SETTINGS,
        )
        following = [sys.executable, "-m", "manifest_platform", "--config", str(shop.config_file), "drain", "--follow"]
        program("drain", [*following], {**os.environ, **through, **ours})
        yield OnCluster(shop, programs, proxies, chance)


@contextmanager
def _proxied_port(port: int) -> Generator[Proxy]:
    with proxied(lambda: socket.create_connection(("127.0.0.1", port)), is_http=True) as proxy:
        yield proxy


def play(home: Path, minutes: float, seed: int, told: Told = lambda line: None, pace: Pace | None = None) -> Played:
    """Plays some minutes, waits until it is at rest, and audits."""
    with on_cluster(home, random.Random(seed)) as deployment:
        shop = deployment.shop
        deployment.land(20)
        told(f"started, and the first run loaded after {deployment.rest():.0f} s")
        reported = 0.0
        for passed in deployment.play(minutes * 60, pace or Pace()):
            if passed - reported > 30 and "PostgreSQL" not in deployment.cut:
                reported, loaded = passed, len(audit.ledger(shop))
                landed, faults = len(deployment.landed), dict(deployment.faults)
                told(f"{passed / 60:4.1f} min: {landed} runs landed, {loaded} loaded; {faults}")
        rested = deployment.rest()
        lines = [
            f"at rest after {rested:.0f} s; {len(deployment.landed)} runs; faults: {dict(deployment.faults)}",
            f"starts: {deployment.starts}; requests that met a fault: { {n: p.total for n, p in deployment.proxies.items()} }",
            f"failed records: {dict(audit.failures(shop))}",
        ]
        wrong = [*audit.lost(shop, deployment.landed), *audit.blamed(shop, deployment.faults.total())]
        return Played(len(deployment.landed), wrong, lines, deployment.faults)


if __name__ == "__main__":
    sys.exit(run("python -m manifest_platform_tests.soak.on_cluster", str(__doc__), 10, play))
