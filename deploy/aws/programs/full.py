"""A run of a job of Glue without Dagster: begins a full load of the latest snapshot, and drains. `spark.where` is `master`."""

from manifest_platform.cli import main

main(["full", "begin", "latest", "--reason", "by Glue"])
if main(["drain"]) not in (0, 4):
    raise SystemExit(1)
