"""Where directories come from: the contract that a source fulfils, and a folder for each source."""
