"""Casting whole columns of text, and finding the few values that do not fit.

Belongs here: what the kernels share. Which text is a value of which type is theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute

pc: Any = pyarrow.compute  # its functions come into being at run time, unknown to type checkers

_YEARS = {  # the first instant of year 1, the last of year 9999: what every warehouse holds
    "us": (-62135596800000000, 253402300799999999),
    "day": (-719162, 2932896),
}


def cast_each(values: pa.Array, cast: Callable[[pa.Array], pa.Array], type_: pa.DataType) -> tuple[pa.Array, list[int]]:
    """The cast values, null where the cast refuses, and the places of the refused ones.

    The whole is cast in one go; only where that is refused it is halved until the misfits are found.
    """
    try:
        return cast(values), []
    except pa.ArrowInvalid:
        if len(values) == 1:
            return pa.nulls(1, type_), [0]
    half = len(values) // 2
    left, left_misfits = cast_each(values[:half], cast, type_)
    right, right_misfits = cast_each(values[half:], cast, type_)
    return pa.concat_arrays([left, right]), left_misfits + [half + place for place in right_misfits]


def refuse_unless(condition: pa.BooleanScalar) -> None:
    """Raises pa.ArrowInvalid for a false condition."""
    if condition.as_py() is False:  # None: there is no value at all
        raise pa.ArrowInvalid("misfit")


def check_years(times: pa.Array) -> pa.Array:
    """The timestamps (microseconds) or dates. Raises pa.ArrowInvalid where one is not of the years 1 to 9999."""
    is_date = pa.types.is_date32(times.type)
    first, last = _YEARS["day" if is_date else "us"]
    found = pc.min_max(times.cast(pa.int32() if is_date else pa.int64())).as_py()
    if found["min"] is not None and (found["min"] < first or found["max"] > last):
        raise pa.ArrowInvalid("misfit")
    return times
