"""The groups of comparisons: one file a group, each a generator of cases.

A group's docstring is its text in the report, title first; ``cases(peer, quick)`` gives what is measured against one.
"""

import importlib
import os
from types import ModuleType

PEERS = {
    "additive": ("torch", "keras", "speechbrain", "espnet", "eole"),
    "heads": ("torch", "keras", "x-transformers", "transformers"),
    "weights": ("torch",),
    "window": ("torch", "local-attention", "transformers"),
    "alibi": ("torch", "x-transformers"),
    "crf": ("pytorch-crf",),
    "ntm": ("torch",),
    "decode": ("transformers", "ctranslate2"),
    "language": ("torch", "transformers"),
    "curves": ("torch",),
}
"""The groups in the order of the report, and whom each compares with."""

FULL_RUN_ONLY = ("transformers", "ctranslate2", "espnet", "eole")
"""Peers that a quick run leaves out: importing them takes long, and others compute alike."""

TWO_THREADS = ("decode",)
"""Groups that are measured with two threads, on which their goals were set; all others with one."""


def threads(name: str) -> int:
    """How many threads both sides of a group use unless the command says otherwise."""
    return min(2, os.cpu_count() or 1) if name in TWO_THREADS else 1


def load(name: str) -> ModuleType:
    """The module of a group."""
    return importlib.import_module(f"benchmarks.groups.{name}")
