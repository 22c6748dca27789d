"""Snowplow enriched events: where runs lie, what their lines hold, and by which schemas they are typed."""
