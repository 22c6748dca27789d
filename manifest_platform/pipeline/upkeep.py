"""Upkeep of a target's tables, after a drain and in housekeeping: under a lease, within a time budget.

Belongs here: who may do it, for how long, and what happens to its errors. No error of upkeep fails an item or a drain: it is
reported, and the next upkeep tries again. What is done with a table is in `warehouse.upkeep`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta

from manifest_platform import progress
from manifest_platform.manifest import LeaseBusy, LeaseLost, StoreError
from manifest_platform.pipeline.events import Tidied
from manifest_platform.pipeline.pipeline import UPKEEP, Pipeline
from manifest_platform.warehouse.errors import WarehouseError
from manifest_platform.warehouse.upkeep import DELETED, Due, OldRows

log = logging.getLogger(__name__)

_HINDERS = (LeaseLost, StoreError, WarehouseError)


def tidied(pipeline: Pipeline, dry_run: bool = False) -> list[Tidied]:
    """Does what the tables of a target need, and returns each action, those of the most changed tables first.

    `dry_run`: returns what would be done. Does nothing while another worker does it, or if nothing is configured.
    """
    settings, done = pipeline.engine_settings.upkeep, list[Tidied]()
    end = time.monotonic() + settings.seconds
    try:
        if not pipeline.warehouse.upkeep.due(settings):
            return []
        with _alone(pipeline, dry_run, timedelta(seconds=settings.seconds)):
            for due in pipeline.warehouse.upkeep.due(settings):  # again, because another worker may have done it meanwhile
                if dry_run:
                    done.append(Tidied(due.table, due.action, due.changed))
                elif time.monotonic() >= end:
                    done.append(_hindered(due.table, due.action, "no time was left; the next upkeep does it"))
                else:
                    done.append(_tidied(pipeline, due))
    except LeaseBusy as busy:
        log.info("%s. It does the upkeep", busy)
    except _HINDERS as error:
        done.append(_hindered("", "upkeep", str(error)))
    return done


def _tidied(pipeline: Pipeline, due: Due) -> Tidied:
    begun = time.monotonic()
    try:
        with progress.work(f"{due.action} of table {due.table}"):
            pipeline.warehouse.upkeep.tidy(due)
    except WarehouseError as error:
        return _hindered(due.table, due.action, str(error))
    return Tidied(due.table, due.action, due.changed, time.monotonic() - begun)


def without_old_rows(pipeline: Pipeline, dry_run: bool = False) -> list[Tidied]:
    """Removes old rows as `load.retention` says, and returns the number for each table. `dry_run`: only counts them."""
    retention, done = pipeline.dataset.load.retention, list[Tidied]()
    if not retention or not pipeline.warehouse.exists():
        return []
    try:
        with _alone(pipeline, dry_run, pipeline.config.limits.of("load")):
            for old in pipeline.warehouse.upkeep.old_rows(retention, pipeline.clock()):
                if old.why_not:
                    done.append(Tidied(old.table, DELETED, until=old.until, why_not=old.why_not))
                elif old.rows:
                    done.append(Tidied(old.table, DELETED, old.rows, until=old.until) if dry_run else _removed(pipeline, old))
    except LeaseBusy as busy:
        log.info("%s. It removes old rows", busy)
    except _HINDERS as error:
        done.append(_hindered("", DELETED, str(error)))
    return done


def _removed(pipeline: Pipeline, old: OldRows) -> Tidied:
    begun = time.monotonic()
    with progress.work(f"removing rows of table {old.table} before {old.until:%Y-%m-%d}"):
        rows = pipeline.warehouse.remove_old(old)
    return Tidied(old.table, DELETED, rows, time.monotonic() - begun, old.until)


def _hindered(table: str, action: str, why: str) -> Tidied:
    log.warning("%s of table %s was not done: %s", action, table or "(any)", why)
    return Tidied(table, action, why_not=why)


@contextmanager
def _alone(pipeline: Pipeline, dry_run: bool, limit: timedelta) -> Generator[None]:
    """Holds the lease of upkeep, and cancels its statements at the limit. Raises LeaseBusy, LeaseLost."""
    if dry_run:
        yield
        return
    duration = timedelta(seconds=pipeline.config.lease.seconds)
    with (
        pipeline.manifest.hold(UPKEEP, pipeline.target, pipeline.holder, duration) as lease,
        lease.within(limit, "upkeep"),
        lease.canceling(pipeline.warehouse.interrupt),
    ):
        yield
