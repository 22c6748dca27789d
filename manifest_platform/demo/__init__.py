"""The demo: two stories with invented data, which run the operator's own commands in an empty folder.

Belongs here: the stories (`shop`, `vault`), the invented events (`events`), and the servers that the demo starts (`dynamodb`,
`s3`, `postgresql`, `spark_cluster`; `cluster` has all of them). Tests and benchmarks load the same events. Does not belong
here: the invented vault, which is in `fake_vault`.
"""
