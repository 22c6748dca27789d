"""A web shop that does not exist: the data that the demo, the tests and the benchmarks load."""
