"""Dagster only: how it shows and drives the pipelines, built from the configuration and from what the sources declare.

Belongs here: a module a subject, with its assets, jobs, sensors and checks. What may happen next is the manifest's matter,
and how it is done the pipeline's.

    build                       all definitions
    capture, listing            directories that are fetched; directories that others land, and when a drain is asked for
    feeds, feed_checks          what is made of a feed: shredded output, the warehouse, its tables; what is checked of it
    drain, blocks, full         the jobs that shred and load; what blocks a feed, shown in red; full loads
    merged, merge_runs, merge_checks    merged tables by day; the job and sensor that merge; what is checked
    housekeeping, dagster_store what is removed once it is old enough: of every dataset, of Dagster's own store
    overview                    how far a dataset is, what is stuck and what to do
    dead_runs, lost_runs        runs that failed, told to the manifest
    resources, io_manager       for assets of a user's own
    days, partition_runs        days by what is loaded; what a run of some partitions, or of a backfill, is to do
    keys, metadata, events, asking    names, what plots, events with clean words, and when a sensor asks for a run
"""
