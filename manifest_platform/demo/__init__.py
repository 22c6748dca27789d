"""The demo: two stories with invented data, which run the operator's own commands in an empty folder.

Belongs here: the stories (`shop`, `vault`), the invented events (`events`), and the servers that the demo starts. Tests and
benchmarks load the same events.
"""
