"""Every domain's errors are of one of the two kinds of fault, or of neither: then the caller has to find out first."""

import pytest

from manifest_platform.faults import Misconfigured, Permanent, Transient
from manifest_platform.manifest.store import ConditionFailed, OutcomeUnknown, RowDamaged, StoreRejected, StoreUnavailable
from manifest_platform.merging.catalogs.catalog import CatalogRejected, CatalogUnavailable
from manifest_platform.merging.errors import MissingInput, TransientMergeError
from manifest_platform.sources.errors import LandingDamaged, LandingMisconfigured, LandingUnavailable
from manifest_platform.sources.snowplow.schemas.registry import RegistryRefused
from manifest_platform.warehouse.errors import Behind, Conflict, DuplicateKey, Fenced, Unavailable, Unclear


@pytest.mark.parametrize(
    "error", [StoreUnavailable, LandingUnavailable, TransientMergeError, CatalogUnavailable, Unavailable, Conflict]
)
def test_an_outage_is_transient(error: type[Exception]) -> None:
    assert issubclass(error, Transient) and not issubclass(error, Permanent)


@pytest.mark.parametrize(
    "error", [StoreRejected, RowDamaged, LandingMisconfigured, MissingInput, CatalogRejected, DuplicateKey]
)
def test_what_a_person_has_to_mend_is_permanent(error: type[Exception]) -> None:
    assert issubclass(error, Permanent) and not issubclass(error, Transient)


@pytest.mark.parametrize("error", [LandingMisconfigured, RegistryRefused])
def test_a_fault_of_the_configuration_is_permanent_and_charged_to_no_item(error: type[Exception]) -> None:
    assert issubclass(error, Misconfigured) and not issubclass(error, Transient)
    assert not issubclass(LandingDamaged, Misconfigured)


@pytest.mark.parametrize("error", [ConditionFailed, OutcomeUnknown, Behind, Fenced, Unclear])
def test_an_answer_of_the_protocol_is_neither(error: type[Exception]) -> None:
    assert not issubclass(error, Permanent | Transient)
