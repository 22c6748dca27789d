"""The stores of the manifest's tests and a fake Vault, for what captures from one into the other."""

from manifest_platform_tests.manifest.conftest import (
    dynamodb,
    dynamodb_server,
    postgres,
    postgres_server,
    pytest_generate_tests,
    reopen,
    store_url,
)
from manifest_platform_tests.servers.vault import vault

__all__ = [
    "dynamodb",
    "dynamodb_server",
    "postgres",
    "postgres_server",
    "pytest_generate_tests",
    "reopen",
    "store_url",
    "vault",
]
