"""The engines that a warehouse runs on: `engine` has the contract; each other module is an engine and a plug-in.

Only code that differs by engine belongs here. No engine imports another, and no module outside names an engine.
"""
