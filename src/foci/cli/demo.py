"""`foci demo`: every task on built-in data, in a few minutes."""

from __future__ import annotations

import random
import shlex
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from foci.cli.commands import SET, Flag, Given, make_command, run_tasks, typed
from foci.printable import printable
from foci.tasks import row_of

if TYPE_CHECKING:
    from foci.tasks.frame.predictor import Predictor
    from foci.tasks.frame.task import Record, Task

_SHOWN, _SEED = 3, 0
"""How many predictions are shown, and the seed that they are drawn by."""


def main(tokens: Sequence[str]) -> None:
    """Run `foci demo` with these arguments."""
    doc = "See a task work on built-in data: train, evaluate, predict, and show what was attended to."
    run_tasks("demo", doc, _command, tokens)


def _command(name: str) -> Callable[..., int | None]:
    from foci.cli.train import task_flags

    def command(given: Given) -> None:
        from foci.tasks.frame.task import find

        demo(find(name), given)

    out = "The folder in which each task has its own, with the run, a picture and a page. Default: demo."
    flags = [Flag("out", out, Path), Flag("steps", "Training steps."), *task_flags(name), SET]
    return make_command(command, f"{row_of(name).summary} On built-in data.", [], flags)


def demo(kind: type[Task], given: Given) -> None:
    """Train, evaluate, predict, and show."""
    import torch

    import foci
    from foci.cli.evaluate import print_evaluation
    from foci.cli.train import tables_from
    from foci.errors import ConfigError
    from foci.settings import to_tables
    from foci.tasks.frame import config as configs

    out = given.get("out", Path("demo"))
    run = out / kind.name
    tables = configs.copied(kind.Config.demo)
    if "steps" in given:
        tables = configs.put(tables, {"training.max_steps": typed(given["steps"])})
    tables = tables_from(kind.name, tables, given)
    config = configs.configure(kind.Config, tables, "foci demo")  # a mistake is reported before a demo is removed
    torch.set_num_threads(1)  # for models this small a second thread costs more than it saves
    if (run / "config.json").exists():
        shutil.rmtree(run)
    print(f"1. Training on built-in data ({kind.name}).", flush=True)
    foci.train(kind.name, tables, out=run, origin="foci demo")
    predictor = foci.load(run)

    print("\n2. On data it has not seen:", flush=True)
    records = predictor.held_out()
    evaluation = predictor.evaluate(records)
    print_evaluation(evaluation)
    asked = configs.configure(kind.Config, kind.Config.demo, "foci demo")
    if {path for path, _, _ in configs.changes(to_tables(asked), to_tables(config))} <= {"training.seed"}:
        promise = kind.Config.promise
        kept = promise.holds(evaluation.metrics[promise.metric])
        print(f"promised with any seed: {promise}; {'it holds' if kept else 'IT DOES NOT HOLD on this machine'}")

    drawn = random.Random(_SEED).sample(list(records), min(_SHOWN, len(records)))
    print(f"\n3. Predictions for {len(drawn)} of them, drawn at random (seed {_SEED}), and what they attended to:")
    inputs = predictor.task.to_files(predictor.task.examples(drawn, _SHOWN), run)
    try:
        shown = _show(predictor, drawn, inputs)
    except ConfigError as error:  # a model without attention, chosen by a flag
        print(f"   {error}")
        shown = []
    for path in shown:
        print(f"   wrote {printable(path)}")
    print(f"\nGo on with: foci show {shlex.quote(str(run))} {_typed(kind, inputs[0])}")


def _show(predictor: Predictor, records: Sequence[Record], inputs: Sequence[Record]) -> list[Path]:
    """Print the predictions for inputs with their traces; write a picture and a page of the first beside the run."""
    predictions = predictor.predict(inputs, trace=True)
    for number, prediction in enumerate(predictions):
        record = records[number % len(records)]
        given = ", ".join(printable(value) for value in prediction.inputs.values())
        expected = printable(predictor.task.expected(record))
        verdict = (
            "" if not expected else "   (right)" if expected == printable(prediction.output) else f"   (not {expected})"
        )
        print(f"{given}  →  {printable(prediction.output)}{verdict}")
        if prediction.trace is not None:
            prediction.trace.print()
        print()
    trace = predictions[0].trace
    if trace is None:
        return []
    picture, page = (predictor.path / f"attention.{ending}" for ending in ("png", "html"))
    trace.plot(picture)
    return [picture.resolve(), trace.save_html(page).resolve()]


def _typed(kind: type[Task], record: Record) -> str:
    return " ".join(shlex.quote(printable(record[field.name])) for field in kind.inputs)
