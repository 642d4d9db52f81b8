"""What a model answers without each of its heads, kept in the metadata of a trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from torch import nn

from foci.errors import ConfigError
from foci.recording import edit, record
from foci.viz.trace import Trace

ANSWER, UNEDITED = "answer", "answer without edits"
"""What the answers are called in a trace's metadata: that of an edited model, and that of the model as it is."""
_WITHOUT, _SCORE = "without ", "score of "
"""What the name of a head's answer in the metadata begins with, and that of its score."""


class Answer(NamedTuple):
    """An answer, and its score where it has one."""

    text: str
    score: float | None = None

    def __str__(self) -> str:
        return self.text if self.score is None else f"{self.text} ({self.score:.4g})"


def answers_without_heads(model: nn.Module, answer: Callable[[], Answer]) -> dict[str, Answer]:
    """Return the answer without each head, by the path of the attention and head: ``"encoder.layers.0.self_attn:2"``.

    Args:
        model: the model that answers.
        answer: calls it, and returns its answer.

    Raises:
        ConfigError: if none of its attentions can be edited.
    """
    with record(model, detach=True) as tape:
        answer()
    found: dict[str, Answer] = {}
    refused: ConfigError | None = None
    for path in tape.paths:
        shape = tape[path].shape
        for head in range(shape[1]) if len(shape) == 4 else [None]:
            try:
                with edit(model) as edits:
                    edits.knock_out(path, head)
                    without = answer()
            except ConfigError as error:  # what is only recorded
                refused = error
                break
            found[path if head is None else f"{path}:{head}"] = without
    if not found and refused is not None:
        raise refused
    return found


def with_answers(trace: Trace, whole: Answer, without: Mapping[str, Answer]) -> Trace:
    """Return the trace with the model's own answer, and those without each head."""
    kept: dict[str, str | float] = {}
    for name, answer in {ANSWER: whole, **{f"{_WITHOUT}{head}": one for head, one in without.items()}}.items():
        kept[name] = answer.text
        if answer.score is not None:
            kept[f"{_SCORE}{name}"] = answer.score
    return replace(trace, metadata={**trace.metadata, **kept})


def own_answer(trace: Trace) -> Answer:
    """Return the answer of the whole model."""
    return _answer(trace, ANSWER)


def answers_of(trace: Trace) -> list[tuple[str, Answer, bool]]:
    """Return the heads, the answers without them that a trace holds, and whether these are others than the model's own.

    Other answers come first, then those whose score is farther from that of the whole model.
    """
    whole = own_answer(trace)
    heads = [name.removeprefix(_WITHOUT) for name in trace.metadata if name.startswith(_WITHOUT)]
    answers = [_answer(trace, f"{_WITHOUT}{head}") for head in heads]
    found = [(head, answer, answer.text != whole.text) for head, answer in zip(heads, answers)]
    return sorted(found, key=lambda one: (not one[2], -abs((one[1].score or 0.0) - (whole.score or 0.0))))


def is_of_heads(name: str) -> bool:
    """Return whether an entry of the metadata with this name is about the answers without heads."""
    return name.removeprefix(_SCORE).startswith(_WITHOUT) or name == f"{_SCORE}{ANSWER}"


def _answer(trace: Trace, name: str) -> Answer:
    score = trace.metadata.get(f"{_SCORE}{name}")
    return Answer(str(trace.metadata.get(name, "")), None if score is None else float(score))
