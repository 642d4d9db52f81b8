"""The commands of the program `foci`, one per file. Their table is in `foci_cli`."""
