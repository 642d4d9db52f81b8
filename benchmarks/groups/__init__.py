"""The groups of comparisons: one file a group, each a generator of cases."""

import importlib
from types import ModuleType

NAMES = ("additive", "heads", "weights", "window", "alibi", "crf", "ntm", "curves")
"""In the order of the report."""


def load(name: str) -> ModuleType:
    """The module of a group: its docstring is the report's text, ``PEERS`` whom it needs, ``cases`` what it measures."""
    return importlib.import_module(f"benchmarks.groups.{name}")
