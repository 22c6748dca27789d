"""Events: lines of 131 fields and their entities, as typed tables."""
