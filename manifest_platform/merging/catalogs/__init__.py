"""Where readers look merged partitions up: the contract, and a file for each catalog."""
