"""The groups of comparisons: one file per group, each a generator of cases.

A group's docstring is its text in the report, title first; ``cases(peer, quick)`` yields the cases against one peer.
"""

import importlib
import os
from types import ModuleType

PEERS = {
    "additive": ("torch", "keras", "speechbrain", "espnet", "eole"),
    "heads": ("torch", "keras", "x-transformers", "transformers"),
    "deformable": ("transformers",),
    "weights": ("torch",),
    "record": ("torch", "transformers"),
    "window": ("torch", "local-attention", "transformers"),
    "alibi": ("torch", "x-transformers"),
    "crf": ("pytorch-crf",),
    "tag": ("torch", "pytorch-crf", "flair"),
    "ntm": ("torch",),
    "word_by_word": ("torch",),
    "location_aware": ("speechbrain", "espnet"),
    "decode": ("transformers", "ctranslate2"),
    "language": ("torch", "transformers"),
    "steps": ("torch",),
    "curves": ("torch",),
}
"""The groups in the order of the report, and the peers of each."""

FULL_RUN_ONLY = ("transformers", "ctranslate2", "espnet", "eole", "flair")
"""Peers that a quick run leaves out: importing them takes long, and others compute the same."""

TWO_THREADS = ("decode",)
"""Groups that are measured with two threads, on which their goals were set; all others with one."""


def threads(name: str) -> int:
    """Return the default number of threads of both sides of a group."""
    return min(2, os.cpu_count() or 1) if name in TWO_THREADS else 1


def load(name: str) -> ModuleType:
    """Return the module of a group."""
    return importlib.import_module(f"benchmarks.groups.{name}")
