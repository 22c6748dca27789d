"""The engines that a warehouse runs on: a file for each."""
