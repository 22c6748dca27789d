"""The engines that a warehouse runs on: `engine` has the contract; each folder is an engine and a plug-in.

Belongs here: only code that differs by engine. No engine imports another, and no module outside names an engine.
Not here: the protocol of a load, which is in `warehouse.apply` and the same for all engines.
"""
