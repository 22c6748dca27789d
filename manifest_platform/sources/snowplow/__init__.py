"""The source of Snowplow enriched events: runs or windows of time, lines of 131 fields, and the schemas of their entities.

    source       the source: names of runs and windows, and what a drain needs to know
    events/      the Spark job over runs, and the functions from lines to typed event and entity columns
    rules        what shredding needs of the settings, in one value
    schemas/     keys, registries and the resolver of JSON Schemas, and the columns that they define
    fields       the fields of an enriched event
    transformed/ runs that Snowplow's own transformer has shredded, as a source of their own
    recognition  guesses of settings for a folder that is not configured yet
    preview      a sample of runs, shredded in memory

Listing, completeness and windows are shared by all sources, in `sources/`.
"""
