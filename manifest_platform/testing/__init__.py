"""Contract suites for authors of plug-ins: the requirements of each contract, as tests that run against your implementation.

Belongs here: a module for each contract, with a class that your test module subclasses. The suites require pytest and
hypothesis. No other package of the platform imports this package.
Not here: the platform's own tests (`manifest_platform_tests`).
"""

import pytest

pytest.register_assert_rewrite(__name__)
