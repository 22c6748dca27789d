"""Dagster's events as we make them: every text in them is free of secrets and of characters that a terminal obeys.

Belongs here: how an event is made of words, some of which are an error's, a directory's or another server's. No other module
of the orchestration makes one of these by itself.
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
    """Has how far long work is told in the run's log, a line every half minute, as long as the block runs."""
    return progress.reported_by(progress.Reporter(context.log.info, _PROGRESS_S))


def fit(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """The metadata with each text in it clean, names included."""
    return {clean(name): _fit(value) for name, value in (metadata or {}).items()}


class Refusal(DagsterUserCodeProcessError, dg.Failure):
    """The failure of a run that is nobody's fault in the code: Dagster's page shows its sentence, and no stack.

    Dagster adds its own stack to any Failure, and that of what led to it: some sixty lines around what a person needs to know.
    An error that another process told of it shows as it is. Retry policies do not see such a failure.
    """

    def __init__(self, description: str, metadata: Mapping[str, Any]):
        said = SerializableErrorInfo(message=description, stack=[], cls_name=None)
        super().__init__(description, metadata=metadata, allow_retries=False, user_code_process_error_infos=[said])


def failure(
    description: str | None, metadata: Mapping[str, Any] | None = None, allow_retries: bool | None = None
) -> dg.Failure:
    """The failure of a run. One that must not be retried is told by its description alone."""
    said, shown = clean(description or ""), fit(metadata)
    return Refusal(said, shown) if allow_retries is False else dg.Failure(said, metadata=shown, allow_retries=allow_retries)


def check_result(
    *,
    passed: bool,
    description: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR,
) -> dg.AssetCheckResult:
    """What a check has found."""
    said = None if description is None else clean(description)
    return dg.AssetCheckResult(passed=passed, severity=severity, description=said, metadata=fit(metadata))


VERSION, IS_OURS = "dagster/data_version", "dagster/data_version_is_user_provided"
"""The tags by which Dagster tells whether what was made from a partition is stale."""


def materialization(
    asset: dg.AssetKey, *, partition: str | None = None, metadata: Mapping[str, Any] | None = None, version: str | None = None
) -> dg.AssetMaterialization:
    """An asset, or a partition of one, is there. Its partition's name is what Dagster finds it by, and stays.

    `version`: text that is another one once what was made from the partition before is superseded.
    """
    tags = {VERSION: version, IS_OURS: "true"} if version else None
    return dg.AssetMaterialization(asset, partition=partition, metadata=fit(metadata), tags=tags)


def observation(
    asset: dg.AssetKey, *, partition: str | None = None, metadata: Mapping[str, Any] | None = None
) -> dg.AssetObservation:
    """Something was seen of an asset, or of a partition of one."""
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
