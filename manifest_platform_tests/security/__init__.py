"""What docs/reference/security.md promises, each promise with the attack that it stands against."""
