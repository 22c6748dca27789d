"""A run of a job of Glue that Dagster starts: `spark.where: glue`."""

from manifest_platform.orchestration.jobs.driver import main

main()
