"""A vault's code location, with real files, SQLite, DuckDB, and optionally a fake Vault."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import dagster as dg

from manifest_platform.config import load
from manifest_platform.orchestration.keys import item_partitions
from manifest_platform_tests.orchestration.code_location import CodeLocation, Result
from manifest_platform_tests.servers.stores import tampered
from manifest_platform_tests.sources.veeva.ward.ward import INCR, NAME, Ward


class DagsterWard(CodeLocation):
    """A ward with its definitions (and a user's own assets) and a Dagster instance."""

    def __init__(self, ward: Ward, instance: dg.DagsterInstance, assets: Collection[dg.AssetsDefinition] = ()) -> None:
        super().__init__(ward.config_file, NAME, instance, assets)
        self.ward = ward

    def capture(self, **config: Any) -> Result:
        """Runs the capture job."""
        return self.run_job(f"{NAME}_capture", config)

    def drain(self, job: str = f"{NAME}_drain", **config: Any) -> Result:
        """Runs a drain job."""
        return self.run_job(job, config)

    def begin(self, **config: Any) -> Result:
        """Runs the job that begins a full load, with a default reason."""
        return self.run_job(f"{NAME}_full_begin", {"reason": "for a test", **config})

    def cancel(self, **config: Any) -> Result:
        """Runs the job that cancels a full load."""
        return self.run_job(f"{NAME}_full_cancel", {"reason": "for a test", **config})

    def add(self, feed: str, *names: str) -> None:
        """Adds partitions, in this order."""
        self.instance.add_dynamic_partitions(str(item_partitions(NAME, feed).name), list(names))

    def partitions(self, feed: str = INCR) -> list[str]:
        return list(self.instance.get_dynamic_partitions(str(item_partitions(NAME, feed).name)))

    def tamper(
        self, window: str, change: Callable[[dict[str, Any]], None], *, of: str = "shred", state: str = "Processed"
    ) -> None:
        """Changes the payload of an application's record of a window, directly in the store."""

        def changed(sort: str, record: dict[str, Any]) -> bool:
            found = window in sort and (record["state"], record["application"]["name"]) == (state, of)
            if found:
                change(record)
            return found

        store = load(self.ward.config_file).manifest.store
        assert tampered(store, NAME, "RECORD#", changed), f"there is no {of} {state} of {window}"

    def break_listing(self, window: str) -> None:
        """Makes the load of a shredded window fail permanently: its output cannot be found."""
        self.tamper(window, lambda record: record["payload"]["data"].update(listing=f"file://{self.ward.home}/nowhere.json"))
