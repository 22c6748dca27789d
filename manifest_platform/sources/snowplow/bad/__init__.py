"""Bad rows of Snowplow: what becomes of lines that are no valid events."""
