"""`foci predict`: the predictions of a run, for every task."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foci.cli.commands import Flag, Given, argument, make_command, option_flags, options_from, require_run, run
from foci.cli.commands import task_of_run as _task_of_run
from foci.printable import print_json, printable

if TYPE_CHECKING:
    from foci.cli.inputs import Input
    from foci.tasks.frame.predictor import Predictor
    from foci.tasks.frame.task import Document, Field, Prediction, Progress, Task

_TOGETHER, _FILES_TOGETHER = 256, 32
"""Inputs of a file per batch, and images or recordings; their predictions are printed together."""
_DOC = """Print a run's predictions for the given inputs, for those of files, or for standard input.

An image or a recording may be a folder of them. An input that cannot be used is named, and the others are predicted:
the exit code is 1 if any failed, and 2 if all did. Lines of standard input are answered as they arrive.
"""
_FLAGS = [
    Flag("file", "Inputs: .jsonl, .tsv, a sentence per line, a document, or a folder of them; several times.", list),
    Flag("encoding", "The encoding of files or of standard input, such as gb18030. Default: UTF-8, -16 or -32."),
    Flag("checkpoint", "auto (averaged, else best), best, last, averaged, or the name of one."),
    Flag("show", "Print what was attended to below each prediction.", bool),
    Flag("json", "Print one JSON object for each input, with its file and line and all details.", bool),
    Flag(
        "tsv", "Print a table: the file and line of each input, its texts, rank, output, score, and what failed.", bool
    ),
]
_RUN = argument("run", "The folder that training wrote.", Path)
_INPUTS = argument("inputs", "The inputs; without any or a file, or with -, standard input is read.", many=True)
_EPILOGUE = "`foci predict RUN --help` also lists the options of the run's task, such as --beam-size."


def main(tokens: Sequence[str]) -> int | None:
    """Run `foci predict` with these arguments; the options are those of the run's task. Return the exit code."""
    kind = _task_of_run(tokens)
    if kind is None and not {"--help", "-h"} & {*tokens}:
        require_run(tokens)

    # The parser takes a lone dash for a flag. After -- it is a text, as everything is there.
    end = list(tokens).index("--") if "--" in tokens else len(tokens)
    dash = "-" in tokens[:end]
    tokens = [*(token for token in tokens[:end] if token != "-"), *tokens[end:]]

    def command(path: Path, *rest: Any) -> int:
        from foci.cli.progress import counting
        from foci.errors import ConfigError

        *inputs, given = rest
        if dash and (inputs or "file" in given):
            raise ConfigError("- is given beside inputs or --file, expected it alone: it reads standard input.")
        if len(forms := [f"--{name}" for name in ("show", "json", "tsv", "form") if name in given]) > 1:
            raise ConfigError(f"{' and '.join(forms)} are given, expected one of them.")
        if inputs and "encoding" in given:
            raise ConfigError("--encoding is given beside inputs, expected it with --file or standard input.")
        # Answers that are printed on the terminal show by themselves how far it is.
        with counting("predicting", None, hidden=sys.stdout.isatty()) as progress:
            return predict(path, inputs, given, progress)

    own = [] if kind is None else option_flags(kind.Options)
    if kind is not None and kind.documents:
        names = " or ".join(kind.documents)
        own.insert(0, Flag("form", f"Print all predictions as one document: {names}."))
    command_line = make_command(command, _DOC, [_RUN, _INPUTS], [*_FLAGS, *own])
    return run("predict", command_line, tokens, "" if kind else _EPILOGUE)


def predict(path: Path, inputs: Sequence[str], given: Given, progress: Progress) -> int:
    """Predict and print; return the exit code: 1 if some inputs failed, 2 if all of them did."""
    from foci.tasks.frame.predictor import load

    predictor = load(path, checkpoint=given.get("checkpoint", "auto"))
    options = options_from(predictor.task.Options, given)
    document = _document(predictor, given)
    files = [Path(file) for file in given.get("file", [])]
    streams = predictor.streams and not {"json", "tsv", "show", "form"} & {*given}
    groups = _in_encoding(read_inputs(predictor, inputs, files), given.get("encoding", "auto"))
    named = _are_named(predictor, options, inputs, files)
    if "tsv" in given:
        print("\t".join(_columns(predictor.task)), flush=True)
    count = failed = 0
    for group in groups:
        for some in ([one] for one in group) if streams else (group,):
            if streams and (pieces := _pieces(predictor, some[0], options)) is not None:
                count += 1
                if named:
                    print(f"{printable(some[0].where)}:", flush=True)
                print_notes(print_pieces(pieces), some[0].where or f"input {count}")
                continue
            answers = _answers(predictor, some, options, progress, trace="show" in given)
            for one, prediction in zip(some, answers, strict=True):
                count, failed = count + 1, failed + prediction.failed
                print_notes(prediction, one.where or f"input {count}")
                if document is None:
                    print_prediction(predictor.task, one, prediction, given, named=named)
                else:
                    _print_lines(document.add(prediction))
    _print_lines(() if document is None else document.end())
    if failed:
        print(f"foci: {failed:,} of {count:,} input{'s' * (count > 1)} failed", file=sys.stderr)
    return 0 if not failed else 2 if failed == count else 1


def _document(predictor: Predictor, given: Given) -> Document | None:
    """Return the document that all predictions are written to; None where each is printed by itself."""
    from foci.errors import unknown_name

    if "form" not in given:
        return None
    documents = predictor.task.documents
    if given["form"] not in documents:
        raise unknown_name("form", given["form"], documents)
    return documents[given["form"]](predictor.assets)


def _print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        print(line, flush=True)


def read_inputs(predictor: Predictor, inputs: Sequence[str], files: Sequence[Path]) -> Iterator[Sequence[Input]]:
    """Return the inputs that were given as arguments, in files or on standard input, in groups to predict together."""
    from foci.cli import inputs as sources
    from foci.errors import ConfigError

    task, fields = predictor.task, predictor.task.inputs
    if inputs and files:
        raise ConfigError("inputs and --file are both given, expected one of them.")
    if not inputs and not files:
        return (list(sources.with_folders(group, fields, _log)) for group in sources.from_standard_input(fields, task))
    given = map(sources.Input, sources.from_arguments(fields, inputs))
    found = given if inputs else sources.from_files(fields, files, task)
    expanded = sources.with_folders(found, fields, _log)
    together = _FILES_TOGETHER if sources.takes_files(fields) else _TOGETHER
    return iter(lambda: list(islice(expanded, together)), [])


def _in_encoding(groups: Iterator[Sequence[Input]], name: str) -> Iterator[Sequence[Input]]:
    """Return the inputs, whose files and lines are read in this encoding."""
    from foci.data.lines import TextEncoding, in_encoding
    from foci.encodings import known_encoding
    from foci.errors import ConfigError

    try:
        return in_encoding(TextEncoding(known_encoding(name), "--encoding"), groups)
    except ValueError as error:
        raise ConfigError(f"--encoding is {name!r}, expected {error}.") from error


def _log(text: str) -> None:
    print(f"foci: {printable(text)}", file=sys.stderr)


def _are_named(predictor: Predictor, options: Any, inputs: Sequence[str], files: Sequence[Path]) -> bool:
    """Return whether the text output names the file of each answer: where there may be several."""
    from foci.cli.inputs import takes_files

    fields = predictor.task.inputs
    if predictor.task.names_inputs(options):
        return False
    if not takes_files(fields):
        return len(files) > 1 or any(map(Path.is_dir, files))
    return len(inputs) != len(fields) or any(Path(text).is_dir() for text in inputs)


def _pieces(predictor: Predictor, one: Input, options: Any) -> Generator[str, None, Prediction] | None:
    """Return the pieces of the answer to an input; None where it comes at once, or the input cannot be used."""
    from foci.errors import DataError

    try:
        return None if one.record is None else predictor.stream(one.record, options=options)
    except DataError:  # `predict` reports it
        return None


def _answers(
    predictor: Predictor, group: Sequence[Input], options: Any, progress: Progress, *, trace: bool
) -> list[Prediction]:
    """Return a prediction for each input; those of inputs that cannot be used have failed."""
    from foci.tasks.frame.task import Prediction

    records = [one.record for one in group if one.record is not None]
    found = iter(_predicted(predictor, records, options, progress, trace))
    return [Prediction.failure({}, one.reason) if one.record is None else next(found) for one in group]


def _predicted(
    predictor: Predictor, records: list[dict[str, Any]], options: Any, progress: Progress, trace: bool
) -> list[Prediction]:
    from foci.errors import DataError
    from foci.tasks.frame.task import Prediction

    try:
        return predictor.predict(records, options=options, trace=trace, progress=progress)
    except DataError as error:
        if len(records) == 1:
            return [Prediction.failure(records[0], str(error))]
        return [answer for record in records for answer in _predicted(predictor, [record], options, progress, trace)]


def print_pieces(pieces: Generator[str, None, Prediction]) -> Prediction:
    """Print the pieces of an answer as they come; return the prediction."""
    while True:
        try:
            print(printable(next(pieces), lines=True), end="", flush=True)
        except StopIteration as end:
            print(flush=True)
            prediction: Prediction = end.value
            return prediction


def print_notes(prediction: Prediction, where: str) -> None:
    """Print what is to be said of the prediction of this input, beside the answer itself."""
    for note in prediction.details.get("notes", []):
        print(f"foci: {printable(where)}: {printable(note.removeprefix(f'{where}: '))}", file=sys.stderr)


def print_prediction(task: Task, one: Input, prediction: Prediction, given: Given, *, named: bool) -> None:
    """Print one prediction and its alternatives."""
    if "json" in given:
        place = {name: value for name, value in (("file", one.file), ("line", one.line)) if value is not None}
        print_json(place | prediction.to_json())
        return
    if "tsv" in given:
        for row in _rows(task, one, prediction):
            print("\t".join("" if cell is None else printable(cell) for cell in row), flush=True)
        return
    answers = (prediction, *prediction.alternatives)
    for answer in answers:
        output, shown = printable(answer.output, lines=task.lines), ""
        if answer.score is not None and task.score == "probability":
            shown = f"{answer.score:6.1%}  "
        elif answer.score is not None and len(answers) > 1:
            shown = f"{answer.score:9.4f}  "
        where = f"{printable(one.where)}:" if named else ""
        print(f"{where}{(chr(10) if chr(10) in output else ' ') if where else ''}{shown}{output}", flush=True)
        if answer.trace is not None and answer.trace.attentions:
            answer.trace.print()


def _columns(task: Task) -> list[str]:
    """Return the names of the columns of the table: a file has one of its own, whatever its field is called."""
    return ["file", "line", *(field.name for field in _texts(task)), "rank", "output", "score", "error"]


def _texts(task: Task) -> list[Field]:
    from foci.cli.inputs import takes_files

    return [field for field in task.inputs if not takes_files([field])]


def _rows(task: Task, one: Input, prediction: Prediction) -> Iterator[list[Any]]:
    """Yield a row of the table for each answer to an input."""
    error = " ".join(prediction.details.get("notes", [])) if prediction.failed else None
    inputs = [prediction.inputs.get(field.name) for field in _texts(task)]
    for rank, answer in enumerate((prediction, *prediction.alternatives), start=1):
        yield [one.file, one.line, *inputs, rank, answer.output, answer.score, error]
