"""The type of a recipe: a configuration file for `foci train`, and the published figure to compare with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from foci.tasks.frame.predictor import Predictor
from foci.tasks.frame.task import Evaluation

CONFIGS = Path(__file__).parent / "configs"
Row = dict[str, Any]


@dataclass(frozen=True)
class Variant:
    """One training of a recipe."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    """Changes of the configuration file, by dotted paths."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the evaluation."""
    init_from: str | None = None
    """The name of an earlier variant; its weights, trained with the same seed, are the start."""


def nothing_more(run: Predictor, evaluation: Evaluation, records: list[Row] | None) -> Row:
    """Return no further metrics."""
    return {}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One configuration file, trained once or in variants, and how its rows are shown."""

    task: str
    title: str
    note: str
    """The task and data, and the published figure to compare with."""
    table: Callable[[list[Row]], str]
    """Markdown of all rows."""
    variants: Mapping[str, Variant]
    """By the names of their rows."""
    test: tuple[str, ...] = ()
    """Files to evaluate on; without any, what training held out."""
    seeds: int = 1
    """Number of seeds per variant."""
    prepare: Callable[[Path], None] | None = None
    """Makes files in the folder of the runs before any training."""
    measure: Callable[[Predictor, Evaluation, list[Row] | None], Row] = nothing_more
    """Further metrics of a run, given its evaluation and the records it was evaluated on."""
    intervals: tuple[str, ...] = ()
    """Metrics that are no shares: their intervals are measured on ten parts of the test examples, or of one text."""
    draw: Callable[[list[Row]], None] | None = None
    """Makes the pictures from all rows."""
