"""`foci probe`: whether what each attention and head read mattered for the answers."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foci.cli.commands import Flag, Given, argument, make_command, option_flags, options_from, run
from foci.printable import print_json, printable
from foci.probing.report import MEASURES, shown_estimate

if TYPE_CHECKING:
    from foci.probing import Options, Probe, Subject
    from foci.probing.subject import Unit
    from foci.viz.trace import Trace

_DOC = """Measure whether what a model attended to mattered for its answers.

foci probe RUN                   a trained run, on examples that training held out

foci probe RUN "a text" …        on these inputs; or --file texts.jsonl

foci probe --hf MODEL "a text" … a Hugging Face model on this machine: a folder, or a name in the local cache

The words, regions of an image or stretches of sound that were read most are erased, beside random ones and those of the
largest gradient × input; the weights are made uniform, permuted, and as different as they can be with the same answer.
Where people marked the reason (in .jsonl; rationales: [[begin, end], …] in characters of a text, or boxes:
[[left, top, right, bottom], …] in pixels of an image), the weights are compared with it.
"""
_FLAGS = [
    Flag("hf", "A Hugging Face model: its folder, or its name in the local cache; nothing is downloaded."),
    Flag("file", "Inputs of a .jsonl file, or texts of another file, one per line.", Path),
    Flag("limit", "Probe at most this many inputs. Default: 100 of those that training held out, all that are given."),
    Flag("checkpoint", "Of a run: auto (averaged, else best), best, last, averaged, or the name of one."),
    Flag("html", "Write the page of the first input, with what was found; it needs no network.", Path),
    Flag("json", "Print one JSON object.", bool),
]
_WHAT = argument("what", "A run's folder and inputs; or, with --hf, texts.", many=True)
_PARTS: dict[Unit, str] = {"words": "words", "regions": "regions", "sound": "stretches of sound"}
_ERASED: dict[Unit, str] = {
    "regions": "an erased region has the mean color of its image, or the mean of its features.",
    "sound": "an erased stretch, a tenth of a second, has the mean of the features of its recording.",
}
_HELD_OUT, _WIDTH = 100, 100
_WIDEST = max(len(said) for said, _ in MEASURES.values())


def main(tokens: Sequence[str]) -> None:
    """Run `foci probe` with these arguments."""
    from foci.probing import Options

    def command(*rest: Any) -> None:
        *what, given = rest
        probe(tuple(what), given)

    run("probe", make_command(command, _DOC, [_WHAT], [*_FLAGS, *option_flags(Options)]), tokens)


def probe(what: tuple[str, ...], given: Given) -> None:
    """Probe and print."""
    from foci.cli.progress import counting
    from foci.errors import ConfigError
    from foci.probing import Options, probe_subjects

    options = options_from(Options, given)
    subjects, count, trace = _of_hugging_face(what, given) if "hf" in given else _of_run(what, given, options)
    if "hf" in given and options.each_token:
        raise ConfigError("--each-token is about runs, so it has no effect with --hf. Leave it out.")
    with counting("probing", count) as progress:
        found = probe_subjects(subjects, options, progress)
    if "html" in given:
        print(printable(trace().with_probe(found.to_json()).save_html(given["html"])), file=sys.stderr)
    if "json" in given:
        print_json(found.to_json())
    else:
        print_probe(found)


def print_probe(found: Probe) -> None:
    """Print a block for each attention with its measures beside chance and the verdict, and a line for each head."""
    for number, row in enumerate(found.rows):
        if row.head is None:
            print("\n" * (number > 0) + f"{printable(row.name)}, of {printable(row.source)}")
            for name, measure in row.measures.items():
                chance = f"  (chance {row.chance[name]:.3f})" if name in row.chance else ""
                print(f"  {MEASURES[name][0]:<{_WIDEST}}  {shown_estimate(measure)}{chance}")
            print(textwrap.indent(textwrap.fill(row.words(), _WIDTH - 2), "  "))
        else:
            said = f"{row.measures['comprehensiveness'].value:6.3f}  {', '.join(row.verdicts)}"
            print(f"    head {row.head:<3} {MEASURES['comprehensiveness'][0]}  {said}")
    print()
    for note in (*_explained(found), *found.notes):
        print(textwrap.fill(printable(note), _WIDTH))


def _explained(found: Probe) -> list[str]:
    units = dict.fromkeys(row.unit for row in found.rows)
    lines = [
        f"without what it read: how far the probability of the answer falls when the 1, 5, 10, 20 and 50 % of "
        f"{' or '.join(_PARTS[unit] for unit in units)} read most are erased (comprehensiveness); with that alone: "
        "when all others are erased (sufficiency)."
    ]
    lines += [_ERASED[unit] for unit in units if unit in _ERASED]
    if "uniform" in found.columns:
        lines.append("uniform and permuted weights: how far all probabilities move (total variation, 0 to 1).")
    if found.inputs > 1:
        lines.append(f"in brackets: 95 % intervals over {found.inputs:,} inputs.")
    return lines


def _of_run(
    what: tuple[str, ...], given: Given, options: Options
) -> tuple[Iterable[Subject], int, Callable[[], Trace]]:
    """Return the inputs of a run, how many there are, and what makes the trace of the first."""
    from foci.cli.inputs import from_arguments
    from foci.cli.predict import print_notes
    from foci.errors import ConfigError
    from foci.tasks.frame.predictor import load
    from foci.tasks.frame.probing.runs import probed_trace, subjects_of_run

    if not what:
        raise ConfigError("name a run: foci probe RUN, or foci probe --hf MODEL TEXT.")
    predictor = load(Path(what[0]), checkpoint=given.get("checkpoint", "auto"))
    records: list[Any] = [*from_arguments(predictor.task.inputs, what[1:])] if what[1:] else []
    records += _of_file(given, predictor.task.inputs[0].name)
    limit = _limit(given)
    if not records:
        task, held_out = predictor.task, [*predictor.held_out()]
        limit = limit or _HELD_OUT
        # Of long texts their beginnings; but where the data splits the words, a record says how.
        records = held_out if task.further else task.examples(held_out, limit)
        count = min(limit, len(records))
        print(f"probing {count:,} of {len(held_out):,} examples held out by training", file=sys.stderr)
    else:
        for number, prediction in enumerate(predictor.predict(records[:limit]), start=1):
            print_notes(prediction, f"input {number}")  # words that the run does not know
    records = records[:limit]

    def trace() -> Trace:
        return probed_trace(predictor, records[0])

    return subjects_of_run(predictor, records, each_token=options.each_token), len(records), trace


def _of_hugging_face(what: tuple[str, ...], given: Given) -> tuple[Iterable[Subject], int, Callable[[], Trace]]:
    """Return the same of a Hugging Face model."""
    from foci import huggingface
    from foci.errors import ConfigError, DataError

    if "checkpoint" in given:
        raise ConfigError("--checkpoint is about runs, so it has no effect with --hf. Leave it out.")
    records = [{"text": text} for text in what] + _of_file(given, "text")
    records = records[: _limit(given)]
    if not records:
        raise ConfigError('the input is missing: foci probe --hf MODEL "your text", or --file texts.jsonl.')
    for number, record in enumerate(records, start=1):
        if "boxes" in record:
            raise ConfigError(f"input {number}: boxes are of images, but a Hugging Face model is probed on texts.")
        if not isinstance(record.get("text"), str):
            raise DataError(
                f"input {number}: has {', '.join(record) or 'no fields'}, expected a text in the field text."
            )
    texts, marked = [record["text"] for record in records], [record.get("rationales") for record in records]

    def trace() -> Trace:
        return next(huggingface.read(given["hf"], texts[:1]))

    return huggingface.subjects(given["hf"], texts, marked), len(texts), trace


def _of_file(given: Given, field: str) -> list[dict[str, Any]]:
    """Return the records of the file, if one is named: the objects of its lines, or its lines as texts."""
    from foci.data.lines import ending_of, read_lines, strict
    from foci.data.tables import JSON, LONGEST_TEXT, json_objects

    if "file" not in given:
        return []
    path = given["file"]
    if ending_of(path) in JSON:
        return [one.content for one in strict(json_objects(path))]
    return [{field: line} for line in strict(read_lines(path, LONGEST_TEXT)) if line.strip()]


def _limit(given: Given) -> int | None:
    from foci.errors import ConfigError

    text = given.get("limit")
    if text is not None and (not text.isdecimal() or not int(text)):
        raise ConfigError(f"--limit is {text!r}, expected a number above 0.")
    return None if text is None else int(text)
