"""`foci tasks`: the applications, without importing torch."""

from __future__ import annotations

from foci.tasks import every


def show_tasks() -> None:
    """List the tasks: what `foci train` can train."""
    known = every()
    width = max(map(len, known))
    for name, row in known.items():
        print(f"{name:{width}}  {row.summary}")
    print("\nfoci demo TASK trains one on built-in data; foci train TASK --help describes how to use your own.")
