"""Where directories come from: sweeps of a landing place, one module a source. Nothing here keeps state."""
