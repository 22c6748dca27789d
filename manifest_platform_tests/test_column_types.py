import pytest

from manifest_platform.column_types import widened


@pytest.mark.parametrize(
    ("have", "want", "result"),
    [
        ("integer", "integer", "integer"),
        ("integer", "bigint", "bigint"),
        ("bigint", "integer", "bigint"),
        ("integer", "double", "double"),
        ("double", "integer", "double"),
        ("bigint", "double", None),
        ("decimal(10,2)", "double", None),
        ("integer", "decimal(12,2)", "decimal(12,2)"),
        ("integer", "decimal(5,2)", "decimal(12,2)"),
        ("bigint", "decimal(38,20)", None),
        ("decimal(5,4)", "decimal(10,0)", "decimal(14,4)"),
        ("decimal(38,0)", "decimal(38,1)", None),
        ("string(9)", "string(10)", "string(10)"),
        ("string(10)", "string(9)", "string(10)"),
        ("string(10)", "string", "string"),
        ("string", "string(10)", "string"),
        ("string", "json", None),
        ("string", "integer", None),
        ("integer", "boolean", None),
        ("date", "timestamp", None),
        ("hugeint", "bigint", None),
    ],
)
def test_only_what_loses_nothing_is_widened(have: str, want: str, result: str | None) -> None:
    assert widened(have, want) == result
