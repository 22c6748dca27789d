"""A model checker over the manifest's own transitions: every interleaving of workers, crashes, operators and discovery.

`python -m manifest_platform_tests.model` explores all configurations. `docs/reference/protocol.md` lists what is
modeled and what is not.
"""
