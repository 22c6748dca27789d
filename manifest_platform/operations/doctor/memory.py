"""The store of what was loaded, which loads of a dataset may need: whether it is there, with the settings that it needs."""

from __future__ import annotations

from collections.abc import Iterator

from manifest_platform.manifest.store import StoreError
from manifest_platform.manifest.stores import check_store
from manifest_platform.operations.doctor.findings import Finding, Kind
from manifest_platform.pipeline import Pipeline
from manifest_platform.remedies import Action, Remedy


def examine(pipeline: Pipeline) -> Iterator[Finding]:
    """Yields a finding for each wrong setting, or one if the store is missing or cannot be asked."""
    url = pipeline.config.memory
    if not (url and pipeline.dataset.remembers):
        return
    try:
        setup = check_store(url, memory=True)
    except StoreError as error:
        yield Finding(Kind.MEMORY, str(error), error.remedy or Remedy(Action.CREATE_STORE), place="manifest.store")
        return
    for one in setup.differences:
        yield Finding(Kind.MEMORY, str(one), Remedy(Action.CREATE_STORE), place=setup.name)
