"""Contract suites for authors of plug-ins: the requirements of each contract, as tests that run against your implementation.

There is a module for each contract, with a class that your test module subclasses. The suites require pytest and hypothesis; no
other package of the platform imports this package.
"""

import pytest

pytest.register_assert_rewrite(__name__)
