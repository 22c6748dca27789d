"""The extras of this package: what each brings, and what is said where one is missing.

Belongs here: which package comes with which extra, as `pyproject.toml` has it. Who imports one of them does so where it is
needed, in a function, and catches nothing: the command line turns the error into one sentence, by `missing`.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

BROUGHT = {
    "spark": ("pyspark", "pyarrow", "numpy", "pandas"),
    "connect": ("grpcio-status",),
    "dagster": ("dagster", "dagster-webserver", "dagster-pyspark"),
    "aws": ("boto3",),
    "duckdb": ("duckdb",),
    "postgresql": ("psycopg",),
}
"""The packages of each extra. What two extras bring is told by the first."""

_IMPORTED = {
    "boto3": ("boto3", "aws"),
    "botocore": ("boto3", "aws"),
    "dagster": ("dagster", "dagster"),
    "dagster_pyspark": ("dagster-pyspark", "dagster"),
    "dagster_spark": ("dagster-pyspark", "dagster"),
    "duckdb": ("duckdb", "duckdb"),
    "google": ("grpcio-status", "connect"),
    "grpc": ("grpcio-status", "connect"),
    "grpc_status": ("grpcio-status", "connect"),
    "numpy": ("numpy", "spark"),
    "pandas": ("pandas", "spark"),
    "psycopg": ("psycopg", "postgresql"),
    "py4j": ("pyspark", "spark"),
    "pyarrow": ("pyarrow", "spark"),
    "pyspark": ("pyspark", "spark"),
}
"""By the first name of a module: the package that has it, and the extra that brings that."""


class MissingExtra(ImportError):
    """What was asked for needs packages that are not installed; the message names the extras that bring them."""


def missing(error: ImportError) -> MissingExtra | None:
    """What is to be said of a module that could not be imported; None where no extra brings it, or where it is there."""
    if isinstance(error, MissingExtra):
        return error
    module = (error.name or "").partition(".")[0]
    return _missing([module]) if module in _IMPORTED and isinstance(error, ModuleNotFoundError) else None


def need(*modules: str) -> None:
    """Raises MissingExtra unless all of these modules are installed, for who would otherwise notice half-way."""
    if error := _missing(modules):
        raise error


def _missing(modules: tuple[str, ...] | list[str]) -> MissingExtra | None:
    absent = [_IMPORTED[module] for module in modules if find_spec(module) is None]
    if not absent:
        return None
    packages, extras = (list(dict.fromkeys(names)) for names in zip(*absent, strict=True))
    are = "is" if len(packages) == 1 else "are"
    return MissingExtra(
        f"this needs {', '.join(packages)}, which {are} not installed:"
        f" pip install 'manifest-platform[{','.join(extras)}]'; [all] has everything",
        name=packages[0],
    )


def installed() -> dict[str, dict[str, str]]:
    """The packages of each extra that are there, with their versions."""
    found: dict[str, dict[str, str]] = {}
    for extra, packages in BROUGHT.items():
        found[extra] = {}
        for package in packages:
            try:
                found[extra][package] = version(package)
            except PackageNotFoundError:
                continue
    return found
