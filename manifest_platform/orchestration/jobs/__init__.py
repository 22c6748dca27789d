"""Jobs of a service that runs Spark, such as AWS Glue: Dagster starts a job run, whose driver works and reports back.

The driver of the job run is a program of this package (`driver`), which does an assignment (`assignments`), and sends the
events of the pipeline as messages of Dagster Pipes through S3. The run in Dagster gets them (`running`, `messages`) as if the
work were done in its own process, so that both ways report the same. Plug-ins start, watch and cancel job runs (`service`,
`services/`).
`driver` and `assignments` do not import Dagster, which a job does not have.
"""
