"""The engines that a warehouse runs on: `engine` is the contract, each other module is an engine, and a plug-in.

Belongs here: what differs by engine. No engine imports another, and nothing outside names one.
"""
