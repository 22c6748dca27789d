"""What the command line and Dagster both offer, free of both."""
