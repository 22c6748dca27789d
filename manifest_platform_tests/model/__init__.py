"""A model checker over the manifest's own transitions: every interleaving of workers, crashes, operators and discovery.

`python -m manifest_platform_tests.model` explores all configurations. `docs/reference/protocol.md` lists what is modeled and
what is not.

Belongs here: the worlds, the programs that move them, the invariants and the guards. Tests of single operations against a real
store are in `manifest_platform_tests/manifest`.
"""
