"""`foci evaluate`: the metrics of a run, for every task."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foci.cli.commands import Flag, Given, argument, make_command, option_flags, options_from, require_run, run
from foci.cli.commands import task_of_run as _task_of_run
from foci.printable import print_json, printable

if TYPE_CHECKING:
    from foci.tasks.frame.task import Evaluation

_DOC = "Compute the metrics of a run on data it was not trained on."
_FLAGS = [
    Flag("checkpoint", "auto (averaged, else best), best, last, averaged, or the name of one."),
    Flag("plot", "Draw the metrics to this .png, .svg or .pdf file, if the task has a picture for them.", Path),
    Flag("json", "Print one JSON object.", bool),
]
_RUN = argument("run", "The folder that training wrote.", Path)
_DATA = argument("data", "Files in the form of the training data; without any, what training held out.", many=True)
_EPILOGUE = "`foci evaluate RUN --help` also lists the options of the run's task."


_WIDEST = 16
"""Columns of a table that is printed."""


def main(tokens: Sequence[str]) -> None:
    """Run `foci evaluate` with these arguments; the options are those of the run's task."""
    kind = _task_of_run(tokens)
    if kind is None and not {"--help", "-h"} & {*tokens}:
        require_run(tokens)

    def command(path: Path, *rest: Any) -> None:
        *data, given = rest
        evaluate(path, data, given)

    own = [] if kind is None else option_flags(kind.EvaluateOptions)
    run("evaluate", make_command(command, _DOC, [_RUN, _DATA], [*_FLAGS, *own]), tokens, "" if kind else _EPILOGUE)


def evaluate(path: Path, data: Sequence[str], given: Given) -> None:
    """Evaluate and print."""
    from foci.cli.progress import counting
    from foci.tasks.frame.held_out import SEEN
    from foci.tasks.frame.predictor import load

    predictor = load(path, checkpoint=given.get("checkpoint", "auto"))
    options = options_from(predictor.task.EvaluateOptions, given)
    records: Any = predictor.read(*data) if data else predictor.held_out()
    chose = getattr(records, "part", None) == "valid"
    named = getattr(getattr(predictor.config, "data", None), "test", None) is not None
    kept = "that chose the checkpoint" if chose else "of data.test" if named else "held out by training"
    origin = "given" if data else kept
    count = f"{len(records):,} example{'s' * (len(records) != 1)}"
    print(f"evaluating on {count} {origin}; weights: {predictor.checkpoint}", file=sys.stderr)
    with counting("evaluating", len(records)) as progress:
        evaluation = predictor.evaluate(records, options=options, progress=progress)
    if "plot" in given:
        predictor.task.draw(evaluation, given["plot"])
    if "json" in given:
        for name in {*SEEN} & {*evaluation.notes}:  # where a program reads the notes, a person does not
            print(f"warning: {evaluation.notes[name]}", file=sys.stderr)
        print_json(evaluation.to_json())
    else:
        print_evaluation(evaluation)


def print_evaluation(evaluation: Evaluation) -> None:
    """Print metrics, notes and tables."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    width = max(map(len, (*evaluation.metrics, *evaluation.notes)), default=0)
    for name, value in evaluation.metrics.items():
        print(f"{name:{width}}  {_number(value)}")
    for name, note in evaluation.notes.items():
        print(f"{name:{width}}  {printable(note)}")
    for name, table in evaluation.tables.items():
        if len(table.columns) > _WIDEST:
            print(f"{name}: a table of {len(table.rows)} rows and {len(table.columns)} columns; --json prints it")
            continue
        shown = Table(title=name, title_justify="left")
        for column in table.columns:
            shown.add_column(Text(printable(column)))
        for row in table.rows:
            shown.add_row(*(Text("" if cell is None else _number(cell)) for cell in row))
        Console().print(shown)


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else printable(value)
