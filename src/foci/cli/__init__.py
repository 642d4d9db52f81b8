"""The commands of the program `foci`, one a file. Their table is in `foci_cli`."""
