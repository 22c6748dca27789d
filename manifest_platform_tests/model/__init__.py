"""A model checker over the manifest's own transitions: every interleaving of workers, crashes, operators and discovery.

`python -m manifest_platform_tests.model` explores all configurations. `docs/protocol.md` says what is modelled and what not.
"""
