"""The source of Snowplow enriched events: runs or windows of time, lines of 131 fields, and the schemas of their entities.

    source       the source: names of runs and windows, and what a drain needs to know
    shredder     the Spark job over runs, and the function from lines to tables
    atomic       the fields of an event, and the function from lines to typed event columns
    entities     the function from JSON cells to typed entity columns
    iglu         JSON Schemas from several registries, and the tables that they define
    registry     clients of registries: folders, and HTTP servers, whose answers are not trusted
    schema_keys  names of schemas, and the table and column names derived from them
    recognition  guesses of settings for a folder that is not configured yet
    preview      a sample of runs, shredded in memory

Listing, completeness and windows are shared by all sources, in `sources/`.
"""
