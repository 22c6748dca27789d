"""Events with a time before the oldest that is allowed. Snowplow calls it `validations.minimumTimestamp`."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute

from manifest_platform.shred.rows import Reason
from manifest_platform.sources.snowplow.events.atomic import Lines
from manifest_platform.sources.snowplow.events.published import TOO_OLD

TIMES = (
    "collector_tstamp",
    "derived_tstamp",
    "dvce_created_tstamp",
    "dvce_sent_tstamp",
    "etl_tstamp",
    "refr_dvce_tstamp",
    "true_tstamp",
)
"""The fields whose times are compared."""

_BEFORE_YEAR_1 = re.compile(r"(-[0-9]{4,}|0000)-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?")


def refuse_old_times(lines: Lines, events: pa.Table, oldest: datetime) -> None:
    """Adds a reason to each line with a time before `oldest`. A year before 1, which no column holds, is too old as well."""
    message = f"is before {oldest.isoformat()}, the oldest time that `shred.oldest` allows"
    for reasons in lines.reasons.values():
        for place, reason in enumerate(reasons):
            if reason.get("field") in TIMES and _BEFORE_YEAR_1.fullmatch(str(reason.get("value", ""))):
                reasons[place] = _reason(reason["field"], reason["value"], message)
    limit = pa.scalar(oldest.astimezone(UTC).replace(tzinfo=None), pa.timestamp("us"))
    for name in TIMES:
        column = events[name]
        is_old = pyarrow.compute.call_function("less", [column, limit]).combine_chunks().fill_null(False)
        for row in np.flatnonzero(is_old.to_numpy(zero_copy_only=False)).tolist():
            lines.add(row, _reason(name, column[row].as_py().isoformat(" "), message))


def _reason(field: str, value: str, message: str) -> Reason:
    return {"type": TOO_OLD, "field": field, "value": value, "message": message}
