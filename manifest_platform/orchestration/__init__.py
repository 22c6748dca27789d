"""Everything that Dagster needs: assets, checks, jobs, schedules and sensors, built from the configuration.

Each subject has a module with its assets, jobs, sensors and checks. Two things do not belong here: the rules for what may
happen next (`manifest`), and the work itself (`pipeline`, `operations`).

    build                       all definitions
    capture, listing            the job that downloads directories; the sensor that discovers them and requests drains
    feeds, feed_checks          the assets of a feed (shredded output, warehouse, tables), and their checks
    drain, blocks, full         the jobs that shred and load; blocked feeds, shown in red; full loads
    merged, merge_runs, merge_checks    merged tables by day; the job and the sensor that merge; their checks
    retention                   deletion of the data in storage that datasets' retention no longer keeps
    housekeeping, dagster_store removal of old data: of every dataset, and of Dagster's own store
    overview                    the progress of a dataset, its problems and their remedies
    dead_runs, lost_runs        runs that failed or vanished, reported to the manifest
    resources, io_manager       resources for a user's own assets
    days, partition_runs        the mapping from items to days; runs of chosen partitions, and backfills
    keys, metadata, events, asking    names, metadata, events with clean text, and the pauses between requests for runs
"""
