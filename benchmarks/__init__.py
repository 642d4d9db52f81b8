"""The bench: foci and its real peers side by side, on the same inputs, in the same run. See README.md."""
