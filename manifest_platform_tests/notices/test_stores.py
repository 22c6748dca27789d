"""Notices of stores: whatever another process writes rings, and nothing rings without a write."""

from __future__ import annotations

from contextlib import closing
from uuid import uuid4

import pytest

from manifest_platform.manifest.store import ABSENT, Put
from manifest_platform.manifest.stores import notices, open_store
from manifest_platform.notices import Bell


@pytest.mark.every_store
def test_a_write_rings(store_url: str) -> None:
    bell, warned = Bell(), list[str]()
    with closing(open_store(store_url)) as store:
        of_store = notices(store_url)
        assert of_store
        bell.listen(of_store, "store", warned.append)
        try:
            assert bell.wait(60) == {"store"}, "as soon as it listens"
            for _ in range(2):
                bell.wait(0)
                store.transact("d", [Put(f"K#{uuid4()}", {}, ABSENT)], str(uuid4()))
                assert bell.wait(60) == {"store"}
            bell.wait(1.5)  # a file is written, and a stream read, in more than one go
            store.get("d", "K")
            assert bell.wait(1.5) == frozenset()
        finally:
            bell.close()
    assert warned == []
