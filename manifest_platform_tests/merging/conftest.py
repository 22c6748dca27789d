"""The stores of the manifest's tests, for merging's."""

from manifest_platform_tests.manifest.conftest import (
    dynamodb,
    dynamodb_server,
    postgres,
    postgres_server,
    pytest_generate_tests,
    reopen,
    store,
    store_url,
)

__all__ = [
    "dynamodb",
    "dynamodb_server",
    "postgres",
    "postgres_server",
    "pytest_generate_tests",
    "reopen",
    "store",
    "store_url",
]
