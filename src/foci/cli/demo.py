"""`foci demo`: every task on built-in data, in a few minutes."""

from __future__ import annotations

import math
import shlex
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foci.cli.commands import SET, Flag, Given, make_command, run_tasks, typed
from foci.printable import printable
from foci.tasks import TASKS

if TYPE_CHECKING:
    from foci.tasks.frame.predictor import Predictor
    from foci.tasks.frame.task import Prediction, Record, Task

_TRIED, _SHOWN = 20, 3


def main(tokens: Sequence[str]) -> None:
    """Run `foci demo` with these arguments."""
    doc = "See a task work on built-in data: train, evaluate, predict, and show what was attended to."
    run_tasks("demo", doc, _command, tokens)


def _command(name: str) -> Callable[..., int | None]:
    from foci.cli.train import task_flags

    def command(given: Given) -> None:
        from foci.tasks.frame.task import find

        demo(find(name), given)

    out = "The folder for the run, a picture and a page; an earlier demo there is replaced. Default: demo."
    flags = [Flag("out", out, Path), Flag("steps", "Training steps."), *task_flags(name), SET]
    return make_command(command, f"{TASKS[name].summary} On built-in data.", [], flags)


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

    print("\n3. Some of its predictions, and what they attended to:")
    try:
        shown = _show(predictor, records, out)
    except ConfigError as error:  # a model without attention, chosen by a flag
        print(f"   {error}")
        shown = []
    for path in shown:
        print(f"   wrote {printable(path)}")
    shown_first = predictor.task.to_files(predictor.task.examples(records, 1), out)[0]
    print(f"\nGo on with: foci show {shlex.quote(str(run))} {_typed(kind, shown_first)}")


def _show(predictor: Predictor, records: Any, out: Path) -> list[Path]:
    """Print some predictions with their traces; write a picture and a page of the first."""
    inputs = predictor.task.to_files(predictor.task.examples(records, _TRIED), out)
    predictions = predictor.predict(inputs, trace=True)
    order = sorted(range(len(inputs)), key=lambda number: _relative_entropy(predictions[number]))[:_SHOWN]
    for number in order:
        record, prediction = records[number % len(records)], predictions[number]
        given = ", ".join(printable(value) for value in prediction.inputs.values())
        expected = printable(predictor.task.expected(record))
        verdict = (
            "" if not expected else "   (right)" if expected == printable(prediction.output) else f"   (not {expected})"
        )
        print(f"{given}  →  {printable(prediction.output)}{verdict}")
        if prediction.trace is not None:
            prediction.trace.print()
        print()
    trace = predictions[order[0]].trace
    if trace is None:
        return []
    trace.plot(out / "attention.png")
    return [(out / "attention.png").resolve(), trace.save_html(out / "attention.html").resolve()]


def _relative_entropy(prediction: Prediction) -> float:
    """Return the mean entropy of the attention, relative to the uniform one, from 0 to 1."""
    from foci.metrics.attention import entropy

    if prediction.trace is None or not prediction.trace.attentions:
        return 1.0
    weights = prediction.trace.alignment()
    return float(entropy(weights).mean() / math.log(max(weights.shape[-1], 2)))


def _typed(kind: type[Task], record: Record) -> str:
    return " ".join(shlex.quote(printable(record[field.name])) for field in kind.inputs)
