"""The extras of this package: their packages, and the message when a package is missing.

Belongs here: which package belongs to which extra, as in `pyproject.toml`. Code imports such a package inside of the function
that needs it and catches nothing; the command line turns the ImportError into a message with `missing`.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

BROUGHT = {
    "spark": ("pyspark", "pyarrow", "numpy", "pandas", "jsonschema-rs"),
    "connect": ("grpcio-status",),
    "dagster": ("dagster", "dagster-webserver", "dagster-pyspark"),
    "aws": ("boto3",),
    "job": ("dagster-pipes",),
    "duckdb": ("duckdb",),
    "postgresql": ("psycopg",),
    "redshift": ("redshift-connector",),
    "snowflake": ("snowflake-connector-python",),
    "follow": ("watchdog",),
    "worker": (),
}
"""The packages of each extra. A package of two extras is listed for the first."""

_IMPORTED = {
    "boto3": ("boto3", "aws"),
    "botocore": ("boto3", "aws"),
    "dagster": ("dagster", "dagster"),
    "dagster_aws": ("dagster-aws", "all"),
    "dagster_pipes": ("dagster-pipes", "job"),
    "dagster_pyspark": ("dagster-pyspark", "dagster"),
    "dagster_spark": ("dagster-pyspark", "dagster"),
    "duckdb": ("duckdb", "duckdb"),
    "google": ("grpcio-status", "connect"),
    "grpc": ("grpcio-status", "connect"),
    "grpc_status": ("grpcio-status", "connect"),
    "jsonschema_rs": ("jsonschema-rs", "spark"),
    "numpy": ("numpy", "spark"),
    "pandas": ("pandas", "spark"),
    "psycopg": ("psycopg", "postgresql"),
    "py4j": ("pyspark", "spark"),
    "pyarrow": ("pyarrow", "spark"),
    "pyspark": ("pyspark", "spark"),
    "redshift_connector": ("redshift-connector", "redshift"),
    "snowflake": ("snowflake-connector-python", "snowflake"),
    "watchdog": ("watchdog", "follow"),
}
"""Maps the top-level name of a module to (its package, the extra that contains it)."""


class MissingExtra(ImportError):
    """A feature needs packages that are not installed. The message names the extras that contain them."""


def missing(error: ImportError) -> MissingExtra | None:
    """Returns the error for an extra's module that is not installed; None for any other failed import."""
    if isinstance(error, MissingExtra):
        return error
    module = (error.name or "").partition(".")[0]
    return _missing([module]) if module in _IMPORTED and isinstance(error, ModuleNotFoundError) else None


def told_of_worker(error: ImportError) -> str:
    """Returns the message for a worker of Spark that lacks a package."""
    return (
        f"a worker of Spark lacks a package ({error}): write the archive of spark.package again with `spark package`, or"
        " install manifest-platform[worker,aws] where the workers find it"
    )


def need(*modules: str) -> None:
    """Raises MissingExtra unless all modules are installed. For code that would otherwise fail halfway."""
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
    """The installed packages of each extra, with their versions."""
    found: dict[str, dict[str, str]] = {}
    for extra, packages in BROUGHT.items():
        found[extra] = {}
        for package in packages:
            try:
                found[extra][package] = version(package)
            except PackageNotFoundError:
                continue
    return found
