"""Edits on the command line: `--knock-out PATH:HEAD`, `--block PATH:HEAD/QUERIES/KEYS`, …, by `foci.edit`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from foci.cli.commands import Flag, Given

if TYPE_CHECKING:
    from foci.recording import Edits
    from foci.tasks.frame.predictor import Predictor
    from foci.tasks.frame.task import Prediction
    from foci.viz.heads.answers import Answer
    from foci.viz.trace import Trace

EACH = "each"
_HOW = (
    "The path is that of foci.record, with --hf also the name that is shown, or a pattern such as '*'; several times."
)
FLAGS = [
    Flag(
        "knock-out",
        f"Let a head read nothing: PATH:HEAD, or PATH for all heads. {_HOW} Or: each, which shows the answer without "
        "each of all heads, on the page too.",
        list,
    ),
    Flag("uniform", f"Let a head read all positions alike: PATH or PATH:HEAD. {_HOW}", list),
    Flag("permute", f"Give the weights of each row to other positions: PATH or PATH:HEAD. {_HOW}", list),
    Flag("block", f"Keep positions from reading others: PATH/QUERIES/KEYS or PATH:HEAD/4/0-2, * for all. {_HOW}", list),
    Flag("zero-values", f"Read 0 in the place of some values: PATH/KEYS or PATH:HEAD/0-2. {_HOW}", list),
]
"""Flags whose values are paths, heads and positions."""

Change = Callable[["Edits"], None]

_METHODS: dict[str, Callable[..., None]] = {
    "knock-out": lambda edits, path, heads: edits.knock_out(path, heads),
    "uniform": lambda edits, path, heads: edits.uniform(path, heads),
    "permute": lambda edits, path, heads: edits.permute(path, head=heads),
    "block": lambda edits, path, heads, queries, keys: edits.block(path, queries, keys, head=heads),
    "zero-values": lambda edits, path, heads, keys: edits.zero_values(path, keys, head=heads),
}
"""What each flag calls, with its path, heads and positions."""


def wants_each(given: Given) -> bool:
    """Return whether the answers without each head are asked for."""
    from foci.errors import ConfigError

    wanted = EACH in given.get("knock_out", ())
    if wanted and sum(len(given.get(_name(flag), ())) for flag in FLAGS) > 1:
        raise ConfigError("--knock-out each is of the model as it is, expected no other edit.")
    return wanted


def edits_from(given: Given) -> Change | None:
    """Return what makes the edits that were given; None without any."""
    found = [_change(flag.name, text) for flag in FLAGS for text in given.get(_name(flag), ()) if text != EACH]

    def change(edits: Edits) -> None:
        for one in found:
            one(edits)

    return change if found else None


def edited_traces(
    predictor: Predictor, records: list[Any], options: Any, predictions: Sequence[Prediction], given: Given
) -> list[Trace | None]:
    """Return the traces of predictions with the edits that were given, and with the answers of the model as it is."""
    from foci.recording import edit
    from foci.viz.heads.answers import ANSWER, UNEDITED, answers_without_heads, with_answers

    traces, change = [prediction.trace for prediction in predictions], edits_from(given)
    if change is not None:
        with edit(predictor.model) as edits:
            change(edits)
            edited = predictor.predict(records, options=options, trace=True)
        for number, (before, after) in enumerate(zip(predictions, edited)):
            if after.trace is not None:
                answers = {ANSWER: str(_answer(after)), UNEDITED: str(_answer(before))}
                traces[number] = replace(after.trace, metadata={**after.trace.metadata, **answers})
    if wants_each(given):
        for number, (record, trace) in enumerate(zip(records, traces)):
            if trace is not None:
                answer = partial(_answered, predictor, record, options)
                found = answers_without_heads(predictor.model, answer)
                traces[number] = with_answers(trace, _answer(predictions[number]), found)
    return traces


def lines(trace: Trace) -> list[str]:
    """Return what edits have done to the answer, for a terminal."""
    from foci.viz.heads.answers import ANSWER, UNEDITED, answers_of, own_answer

    others = answers_of(trace)
    if others:
        return [
            f"{ANSWER}: {own_answer(trace)}",
            *(f"{'! ' if other else '  '}without {head}: {answer}" for head, answer, other in others),
        ]
    return [f"{label}: {trace.metadata[label]}" for label in (ANSWER, UNEDITED) if label in trace.metadata]


def _answered(predictor: Predictor, record: Any, options: Any) -> Answer:
    return _answer(predictor.predict([record], options=options)[0])


def _answer(prediction: Prediction) -> Answer:
    from foci.viz.heads.answers import Answer

    return Answer(prediction.output, prediction.score)


def numbers(text: str, what: str) -> list[int]:
    """Return "0,2-4" as [0, 2, 3, 4]."""
    from foci.errors import ConfigError

    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ConfigError(f"{what} is {text!r}, expected zero-based numbers, such as 0,2-4.")
        found += range(int(first), int(last if dash else first) + 1)
    return found


def _change(flag: str, text: str) -> Change:
    from foci.errors import ConfigError
    from foci.outputs import PARTS

    parts = text.split("/")
    wanted = {"block": 3, "zero-values": 2}.get(flag, 1)
    if len(parts) != wanted or not parts[0]:
        form = ("PATH:HEAD", "PATH:HEAD/KEYS", "PATH:HEAD/QUERIES/KEYS")[wanted - 1]
        raise ConfigError(f"--{flag} is {text!r}, expected {form}, where :HEAD may be left out.")
    path, colon, head = parts[0].rpartition(":")
    has_head = bool(colon) and head not in PARTS  # as "memory:read", which is a path
    path, heads = (path, numbers(head, f"--{flag}: the head")) if has_head else (parts[0], None)
    places = [None if part == "*" else numbers(part, f"--{flag}: a position") for part in parts[1:]]

    return lambda edits: _METHODS[flag](edits, path, heads, *places)


def _name(flag: Flag) -> str:
    return flag.name.replace("-", "_")
