"""What is probed: one input of a model, the tokens of it that can be erased, and what its attentions read of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from foci.errors import ConfigError, ShapeError

Place = int | str


class Source(NamedTuple):
    """Tokens of an input.

    Attributes:
        place: the tensor of their ids ``(1, S)`` among the arguments of the model: a number or a name.
        tokens: their labels.
        fixed: those that are never erased, such as the special tokens that begin and end a text.
        gold: those that people marked as the reason; None if nobody did.
    """

    place: Place
    tokens: tuple[str, ...]
    fixed: frozenset[int] = frozenset()
    gold: frozenset[int] | None = None

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
        neutral: the id whose vector takes the place of an erased one's, such as that of a mask token. Default: the
            mean of all vectors.
        title: the input and the answer, for people.
    """

    model: nn.Module
    inputs: Mapping[Place, Any]
    sources: Mapping[str, Source]
    attentions: Mapping[str, Attended]
    probabilities: Callable[[Any], Tensor]
    neutral: int | None = None
    title: str = ""
    notes: tuple[str, ...] = field(default=())

    def answer(self, rows: int = 1) -> Tensor:
        """Return the probabilities of the answers for this many copies of the input."""
        args = [self._repeated(value, rows) for place, value in self.inputs.items() if isinstance(place, int)]
        named = {name: self._repeated(value, rows) for name, value in self.inputs.items() if isinstance(name, str)}
        found = self.probabilities(self.model(*args, **named))
        if found.dim() not in (2, 3) or len(found) != rows:
            raise ShapeError(
                f"probe: the probabilities have shape {tuple(found.shape)}, expected ({rows}, answers) or "
                f"({rows}, tokens, answers)."
            )
        return found

    def _repeated(self, value: Any, rows: int) -> Any:
        if isinstance(value, Tensor) and value.dim() and len(value) == 1:
            return value.expand(rows, *value.shape[1:])
        return value


class Erasing:
    """Answers of a subject with some of its tokens erased: at the embeddings that read them.

    The vector of an erased token is replaced by a neutral one, so the length of the input and its positions stay. An
    embedding is found by the ids it is given: those of the source, in their order, perhaps without padding and in other
    rows, as a document is read by sentences.
    """

    def __init__(self, subject: Subject, key: str, batch_size: int) -> None:
        self.subject, self.source, self.batch_size = subject, subject.sources[key], batch_size
        self.ids = subject.inputs[self.source.place].flatten()
        if len(self.ids) != len(self.source.tokens):
            raise ShapeError(f"probe: {key!r} has {len(self.source.tokens)} tokens, but {len(self.ids)} ids.")
        with torch.no_grad():
            self.before = self._run([()])[0].double()
        self.best = self.before.argmax(dim=-1, keepdim=True)

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
        """Return gradient × input of each token: of the log-probability of the answer, by the token's vectors."""
        with torch.enable_grad():
            answer, vectors = self._run([()], differentiate=True)
            log_probability = answer.gather(-1, self.best).clamp_min(1e-30).log().mean()
            gradients = torch.autograd.grad(log_probability, vectors)
        shares = torch.stack([(one * by).sum(dim=-1).double() for one, by in zip(vectors, gradients)]).sum(dim=0)
        return np.asarray(shares.detach().cpu().numpy())

    def _run(self, sets: Sequence[Collection[int]], *, differentiate: bool = False) -> tuple[Tensor, list[Tensor]]:
        """Return the answers without each set, and the vectors of the tokens, to differentiate by."""
        seen: set[nn.Module] = set()
        vectors: list[Tensor] = []

        def erase(module: nn.Embedding, args: tuple[Any, ...], output: Tensor) -> Tensor | None:
            places = None if module in seen or not args else self._places(module, args[0], len(sets))
            if places is None:
                return None
            seen.add(module)
            flat = output.reshape(-1, output.shape[-1])
            if differentiate:
                vectors.append(flat[places].detach().requires_grad_())
                return flat.detach().index_copy(0, places, vectors[-1]).reshape(output.shape)
            count = len(self.ids)
            rows = [number * count + place for number, gone in enumerate(sets) for place in gone]
            neutral = self._neutral(module).to(flat.dtype)
            return flat.index_put((places[torch.tensor(rows, dtype=torch.long)],), neutral).reshape(output.shape)

        embeddings = [module for module in self.subject.model.modules() if isinstance(module, nn.Embedding)]
        hooks = [module.register_forward_hook(erase) for module in embeddings]
        try:
            answer = self.subject.answer(len(sets))
        finally:
            for hook in hooks:
                hook.remove()
        if not seen:
            raise ConfigError(
                f"probe: no torch.nn.Embedding of {type(self.subject.model).__name__} reads the tokens of "
                f"{self.source.place!r}, so they cannot be erased. Name the input that has the ids of the tokens."
            )
        return answer, vectors

    def _neutral(self, module: nn.Embedding) -> Float[Tensor, " D"]:
        weight = module.weight.detach()
        return weight.mean(dim=0) if self.subject.neutral is None else weight[self.subject.neutral]

    def _places(self, module: nn.Embedding, ids: Any, copies: int) -> Tensor | None:
        """Return where the ids of the source stand among those of a call, flattened; None if it reads others."""
        if not isinstance(ids, Tensor) or ids.is_floating_point():
            return None
        given, wanted = ids.flatten(), self.ids.clamp_max(module.num_embeddings - 1).repeat(copies)
        places = torch.arange(len(given), device=given.device)
        if given.shape != wanted.shape:
            places = places[given != (module.padding_idx or 0)]
        return places if len(places) == len(wanted) and torch.equal(given[places], wanted) else None


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
