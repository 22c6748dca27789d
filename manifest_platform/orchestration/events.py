"""Dagster's events, with every text free of secrets and of terminal control characters.

Texts in events come from errors, directory names and other servers. Other modules of the orchestration therefore make their
events with these functions only.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import dagster as dg
from dagster._core.errors import DagsterUserCodeProcessError
from dagster._utils.error import SerializableErrorInfo

from manifest_platform import progress
from manifest_platform.outward import clean

_PROGRESS_S = 30.0


def telling_progress(context: dg.OpExecutionContext | dg.AssetExecutionContext) -> AbstractContextManager[None]:
    """Returns a context manager that logs the progress of long work to the run's log, every 30 seconds."""
    return progress.reported_by(progress.Reporter(context.log.info, _PROGRESS_S))


def fit(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns the metadata with clean names and texts."""
    return {clean(name): _fit(value) for name, value in (metadata or {}).items()}


class Refusal(DagsterUserCodeProcessError, dg.Failure):
    """A failure that is no fault in the code: Dagster's page shows its message without a stack trace.

    Dagster adds a stack trace to each Failure and to its cause, about sixty lines around the message. It shows an error that
    was reported by another process as it is, and this class uses that. Retry policies do not apply to such a failure.
    """

    def __init__(self, description: str, metadata: Mapping[str, Any]):
        said = SerializableErrorInfo(message=description, stack=[], cls_name=None)
        super().__init__(description, metadata=metadata, allow_retries=False, user_code_process_error_infos=[said])


def failure(
    description: str | None, metadata: Mapping[str, Any] | None = None, allow_retries: bool | None = None
) -> dg.Failure:
    """Returns the failure of a run, with clean texts. `allow_retries=False` also hides the stack trace."""
    said, shown = clean(description or ""), fit(metadata)
    return Refusal(said, shown) if allow_retries is False else dg.Failure(said, metadata=shown, allow_retries=allow_retries)


def check_result(
    *,
    passed: bool,
    description: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR,
) -> dg.AssetCheckResult:
    """Returns the result of a check, with clean texts."""
    said = None if description is None else clean(description)
    return dg.AssetCheckResult(passed=passed, severity=severity, description=said, metadata=fit(metadata))


VERSION, IS_OURS = "dagster/data_version", "dagster/data_version_is_user_provided"
"""The tags by which Dagster decides if downstream partitions are stale."""


def materialization(
    asset: dg.AssetKey, *, partition: str | None = None, metadata: Mapping[str, Any] | None = None, version: str | None = None
) -> dg.AssetMaterialization:
    """Returns the event that an asset, or a partition of it, is materialized. The partition's name is left unchanged.

    `version`: the data version. A new version marks what was made from the partition before as stale.
    """
    tags = {VERSION: version, IS_OURS: "true"} if version else None
    return dg.AssetMaterialization(asset, partition=partition, metadata=fit(metadata), tags=tags)


def observation(
    asset: dg.AssetKey, *, partition: str | None = None, metadata: Mapping[str, Any] | None = None
) -> dg.AssetObservation:
    """Returns an observation of an asset or of a partition, with clean texts."""
    return dg.AssetObservation(asset, partition=partition, metadata=fit(metadata))


def _fit(value: Any) -> Any:
    match value:
        case str():
            return clean(value)
        case dg.TextMetadataValue(text=text):
            return dg.MetadataValue.text(clean(text or ""))
        case dg.MarkdownMetadataValue(md_str=text):
            return dg.MetadataValue.md(clean(text or ""))
        case dg.TableMetadataValue(records=records, schema=schema):
            lines = [dg.TableRecord({name: _fit(cell) for name, cell in record.data.items()}) for record in records]
            return dg.MetadataValue.table(lines, schema)
    return value
