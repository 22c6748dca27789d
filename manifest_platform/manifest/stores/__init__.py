"""Where the manifest is kept: a file for each kind of store."""
