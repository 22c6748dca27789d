"""AWS: the stacks of `deploy/aws`, and the permissions of each duty against the calls that it makes."""
