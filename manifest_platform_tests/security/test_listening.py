"""Servers that the demo and the tests start are reached from this machine alone."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

import pytest

from manifest_platform.demo.dynamodb import DynamoDbLocal


def test_dynamodb_local_listens_on_the_loopback_address_alone(dynamodb: DynamoDbLocal) -> None:
    """DynamoDB Local once listened on all addresses, open to the network. 127.0.0.2 represents another address."""
    port = urlsplit(dynamodb.endpoint).port
    assert port
    socket.create_connection(("127.0.0.1", port), timeout=2).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", port), timeout=2)
