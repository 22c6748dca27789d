"""Contract suites for the authors of plug-ins: what an implementation must do, as tests that run against theirs.

Belongs here: a module for each contract, with a class that a test module subclasses, and what these need. pytest and hypothesis
are needed to run them, and nothing of the platform imports this package.
"""

import pytest

pytest.register_assert_rewrite(__name__)
