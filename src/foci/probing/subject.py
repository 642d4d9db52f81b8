"""What is probed: one input of a model, the parts of it that can be erased, and what its attentions read of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from foci.errors import ConfigError, ShapeError
from foci.probing.erasers import Embedded, Eraser, Inputs, Place, Values

Unit = Literal["words", "regions", "sound"]
"""What the parts of a source are: words or pieces of words, regions of an image, or stretches of sound."""
Probabilities = Callable[[Any], Tensor]


class Source(NamedTuple):
    """Tokens of an input, or other parts of it: regions of an image, stretches of a recording.

    Attributes:
        place: the tensor of their ids ``(1, S)``, or of the numbers they consist of, among the arguments of the model:
            a number or a name.
        tokens: their labels.
        fixed: those that are never erased, such as the special tokens that begin and end a text.
        gold: those that people marked as the reason; None if nobody did.
        eraser: how they are erased. Default: at the embedding of their ids.
        unit: what they are.
        probabilities: returns those of the answers for which they are read; None: those of the subject.
    """

    place: Place
    tokens: tuple[str, ...]
    fixed: frozenset[int] = frozenset()
    gold: frozenset[int] | None = None
    eraser: Eraser = Embedded()
    unit: Unit = "words"
    probabilities: Probabilities | None = None

    @property
    def erasable(self) -> list[int]:
        """The positions that may be erased."""
        return [place for place in range(len(self.tokens)) if place not in self.fixed]


class Attended(NamedTuple):
    """What an attention read.

    Attributes:
        source: the key of the source that it read.
        weights: how much its heads read each token, ``(H, S)``.
        paths: the modules that compute it, by which `foci.edit` knows them; none if that is not known.
    """

    source: str
    weights: NDArray[np.float64]
    paths: tuple[str, ...] = ()


class Change(NamedTuple):
    """How an answer changed.

    Attributes:
        probability: of what the model had answered, the mean over the tokens of an answer of several.
        distance: total variation from the probabilities it had given, ``½ Σ |p − q|``, likewise.
    """

    probability: float
    distance: float


@dataclass(frozen=True)
class Subject:
    """One input of a model.

    Args:
        model: any module, in evaluation mode.
        inputs: the arguments it is called with, by position (numbers) or by name; tensors with a batch axis of 1 are
            repeated for a batch.
        sources: the tokens that can be erased, by a key.
        attentions: what its attentions read, by name.
        probabilities: returns those of the answers ``(B, K)``, or for an answer of T tokens ``(B, T, K)``, from what
            the model returns.
        forward: is called with the arguments instead of the model, whose parts it calls.
        title: the input and the answer, for people.
        notes: what is not measured of it, and why.
    """

    model: nn.Module
    inputs: Inputs
    sources: Mapping[str, Source]
    attentions: Mapping[str, Attended]
    probabilities: Probabilities
    forward: Callable[..., Any] | None = None
    title: str = ""
    notes: tuple[str, ...] = field(default=())

    def answer(self, rows: int = 1, inputs: Inputs | None = None, probabilities: Probabilities | None = None) -> Tensor:
        """Return the probabilities of the answers.

        Args:
            rows: copies of the input that are answered.
            inputs: other arguments, with a batch axis of 1 or of ``rows``.
            probabilities: those of other answers.
        """
        given = self.inputs if inputs is None else inputs
        args = [_repeated(value, rows) for place, value in given.items() if isinstance(place, int)]
        named = {name: _repeated(value, rows) for name, value in given.items() if isinstance(name, str)}
        found = (probabilities or self.probabilities)((self.forward or self.model)(*args, **named))
        if found.dim() not in (2, 3) or len(found) != rows:
            raise ShapeError(
                f"probe: the probabilities have shape {tuple(found.shape)}, expected ({rows}, answers) or "
                f"({rows}, tokens, answers)."
            )
        return found


def _repeated(value: Any, rows: int) -> Any:
    if isinstance(value, Tensor) and value.dim() and len(value) == 1:
        return value.expand(rows, *value.shape[1:])
    return value


class Erasing:
    """Answers of a subject with some parts of one of its sources erased."""

    def __init__(self, subject: Subject, key: str, batch_size: int) -> None:
        self.subject, self.source, self.batch_size = subject, subject.sources[key], batch_size
        count = self.source.eraser.count(subject.inputs[self.source.place])
        if count != len(self.source.tokens):
            raise ShapeError(
                f"probe: {key!r} has {len(self.source.tokens)} labels, but {self.source.place!r} has {count} "
                f"{self.source.unit}. Name them all."
            )
        with torch.no_grad():
            self.before = self._run([()])[0].double()
        self.best = self.before.argmax(dim=-1, keepdim=True)

    def whole(self) -> Tensor:
        """Return the answer to the whole input."""
        return self.subject.answer(probabilities=self.source.probabilities)

    def changes(self, sets: Iterable[Collection[int]]) -> list[Change]:
        """Return how the answer changes without each of these sets of tokens."""
        wanted = [tuple(sorted(one)) for one in sets]
        different = [*dict.fromkeys(wanted)]
        found: dict[tuple[int, ...], Change] = {}
        for start in range(0, len(different), self.batch_size):
            part = different[start : start + self.batch_size]
            with torch.no_grad():
                after, _ = self._run(part)
            found |= dict(zip(part, self.compared(after)))
        return [found[one] for one in wanted]

    def compared(self, after: Tensor) -> list[Change]:
        """Return how answers differ from that to the whole input."""
        after = after.double()
        chosen = after.gather(-1, self.best.expand(*after.shape[:-1], 1)).flatten(1).mean(dim=1)
        apart = (after - self.before).abs().sum(dim=-1).div(2).reshape(len(after), -1).mean(dim=1)
        return [Change(*pair) for pair in zip(chosen.tolist(), apart.tolist())]

    def gradient(self) -> Float[NDArray[np.float64], " S"]:
        """Return gradient × input of each token: of the answer's log-probability, by the numbers it consists of."""
        with torch.enable_grad():
            answer, values = self._run([()], differentiate=True)
            log_probability = answer.gather(-1, self.best).clamp_min(1e-30).log().mean()
            gradients = torch.autograd.grad(log_probability, [one.leaf for one in values])
        shares = torch.zeros(len(self.source.tokens) + 1, dtype=torch.float64, device=answer.device)
        for one, by in zip(values, gradients):
            owner = one.owner.expand_as(by) % len(shares)  # −1 is counted last, and left out
            shares.index_add_(0, owner.flatten(), (one.measured * by).double().flatten())
        return np.asarray(shares[:-1].cpu().numpy())

    def _run(self, sets: Sequence[Collection[int]], *, differentiate: bool = False) -> tuple[Tensor, list[Values]]:
        """Return the answers without each set, and the numbers of the tokens, to differentiate by."""
        subject, source = self.subject, self.source
        erased = source.eraser.erased(subject.model, subject.inputs, source.place, sets, differentiate=differentiate)
        with erased as reading:
            answer = subject.answer(len(sets), reading.inputs, source.probabilities)
        return answer, reading.values


def _is_span(span: object, size: int) -> bool:
    if not (isinstance(span, list | tuple) and len(span) == 2):
        return False
    begin, end = span
    return all(isinstance(place, int | np.integer) for place in span) and 0 <= begin <= end <= size


def overlapping(places: Sequence[tuple[int, int]], spans: Sequence[Sequence[int]], size: int) -> frozenset[int]:
    """Return which tokens lie in spans of characters, in part at least.

    Args:
        places: begin and end of each token.
        spans: begin and end of what people marked.
        size: how many characters the text has.
    """
    if not (isinstance(spans, list | tuple) and all(_is_span(one, size) for one in spans)):
        raise ConfigError(
            f"probe: rationales are {spans!r}, expected [[begin, end], …] in characters of the text, which has {size}."
        )
    return frozenset(
        number
        for number, (begin, end) in enumerate(places)
        if any(begin < last and first < end for first, last in spans)
    )
