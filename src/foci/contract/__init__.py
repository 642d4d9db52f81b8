"""The contract that every mechanism keeps, as laws that are tried: in the tests, and by `foci.check`."""
