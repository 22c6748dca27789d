"""Snowplow enriched events: where runs lie, what their lines hold, and by which schemas they are typed.

source       the source: what a run's name means, and what a drain is to know
shredder     the Spark job over runs, and lines to tables
atomic       the fields of an event, and lines to typed event columns
entities     JSON cells to typed entity columns
iglu         which JSON Schemas there are, and the tables that they make
registry     where they come from: folders, and servers that may answer anything
schema_keys  their names, and the names that are made of them
"""
