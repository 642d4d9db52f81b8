"""`foci predict`: the predictions of a run, for every task."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foci.cli.commands import Flag, Given, argument, make_command, option_flags, options_from, require_run, run
from foci.cli.commands import task_of_run as _task_of_run
from foci.printable import printable, to_json

if TYPE_CHECKING:
    from foci.tasks.frame.predictor import Predictor
    from foci.tasks.frame.task import Prediction, Task

_TOGETHER = 256
"""Inputs of a file per batch; their predictions are printed together."""
_DOC = "Print a run's predictions for the given inputs, for those of files, or for standard input."
_FLAGS = [
    Flag("file", "A file of inputs: .jsonl, .tsv, one sentence per line, or one document; several times.", list),
    Flag("checkpoint", "auto (averaged, else best), best, last, averaged, or the name of one."),
    Flag("show", "Print what was attended to below each prediction.", bool),
    Flag("json", "Print one JSON object for each input, with all details.", bool),
]
_RUN = argument("run", "The folder that training wrote.", Path)
_INPUTS = argument("inputs", "The inputs; without any or a file, or with -, standard input is read.", many=True)
_EPILOGUE = "`foci predict RUN --help` also lists the options of the run's task, such as --beam."


def main(tokens: Sequence[str]) -> None:
    """Run `foci predict` with these arguments; the options are those of the run's task."""
    kind = _task_of_run(tokens)
    if kind is None and not {"--help", "-h"} & {*tokens}:
        require_run(tokens)

    # The parser takes a lone dash for a flag. After -- it is a text, as everything is there.
    end = list(tokens).index("--") if "--" in tokens else len(tokens)
    dash = "-" in tokens[:end]
    tokens = [*(token for token in tokens[:end] if token != "-"), *tokens[end:]]

    def command(path: Path, *rest: Any) -> None:
        *inputs, given = rest
        if dash and (inputs or "file" in given):
            from foci.errors import ConfigError

            raise ConfigError("- is given beside inputs or --file, expected it alone: it reads standard input.")
        predict(path, inputs, given)

    own = [] if kind is None else option_flags(kind.Options)
    run("predict", make_command(command, _DOC, [_RUN, _INPUTS], [*_FLAGS, *own]), tokens, "" if kind else _EPILOGUE)


def predict(path: Path, inputs: Sequence[str], given: Given) -> None:
    """Predict and print."""
    from foci.tasks.frame.predictor import load

    predictor = load(path, checkpoint=given.get("checkpoint", "auto"))
    options = options_from(predictor.task.Options, given)
    records = read_inputs(predictor, inputs, [Path(file) for file in given.get("file", [])])
    one_by_one = not inputs and "file" not in given and sys.stdin.isatty()
    streams = predictor.streams and not {"json", "show"} & {*given}
    number = 0
    while some := list(islice(records, 1 if one_by_one or streams else _TOGETHER)):
        if streams and (pieces := predictor.stream(some[0], options=options)) is not None:
            number += 1
            print_notes(print_pieces(pieces), number)
            continue
        for prediction in predictor.predict(some, options=options, trace="show" in given):
            number += 1
            print_notes(prediction, number)
            print_prediction(type(predictor.task), prediction, given)


def print_pieces(pieces: Generator[str, None, Prediction]) -> Prediction:
    """Print the pieces of an answer as they come; return the prediction."""
    while True:
        try:
            print(printable(next(pieces), lines=True), end="", flush=True)
        except StopIteration as end:
            print(flush=True)
            prediction: Prediction = end.value
            return prediction


def read_inputs(predictor: Predictor, inputs: Sequence[str], files: Sequence[Path]) -> Iterator[dict[str, Any]]:
    """Return the records that were given as arguments, in files or on standard input."""
    from foci.cli import inputs as sources
    from foci.errors import ConfigError

    fields = predictor.task.inputs
    if inputs and files:
        raise ConfigError("inputs and --file are both given, expected one of them.")
    if inputs:
        return sources.from_arguments(fields, inputs)
    return sources.from_files(fields, files) if files else sources.from_standard_input(fields)


def print_notes(prediction: Prediction, number: int) -> None:
    """Print what is to be said of the prediction of this input, beside the answer itself."""
    for note in prediction.details.get("notes", []):
        print(f"foci: input {number}: {printable(note)}", file=sys.stderr)


def print_prediction(kind: type[Task], prediction: Prediction, given: Given) -> None:
    """Print one prediction and its alternatives."""
    if "json" in given:
        print(to_json(prediction.to_json()), flush=True)
        return
    answers = (prediction, *prediction.alternatives)
    for answer in answers:
        if answer.score is not None and kind.score == "probability":
            print(f"{answer.score:6.1%}  {printable(answer.output, lines=kind.lines)}", flush=True)
        elif answer.score is not None and len(answers) > 1:
            print(f"{answer.score:9.4f}  {printable(answer.output, lines=kind.lines)}", flush=True)
        else:
            print(printable(answer.output, lines=kind.lines), flush=True)
        if answer.trace is not None and answer.trace.attentions:
            answer.trace.print()
