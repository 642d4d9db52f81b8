"""The command line. `__main__` holds the one table of commands; each command is a function in a file of its own."""
