"""What `foci.record` returns: the weights of every attention that ran, and what looks like one and was not recorded."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from foci.errors import ConfigError, UnknownNameError, unknown_name
from foci.recording.differential import can_subtract, difference, distinct
from foci.recording.head_search import HeadRanking, Positions, Searched, Wanted, search
from foci.recording.missed import Calls
from foci.recording.projections import Projected, Projections
from foci.recording.torch_calls import Flow
from foci.recording.transforms import after_transforms
from foci.recording.written_out import Read
from foci.weights import Weights

ROOT = "."
"""The path of the model itself: no module inside it can have this name."""


@dataclass(eq=False)
class Entry:
    """One call of an attention."""

    path: str
    weights: Weights
    flow: Flow | None = None  # for `Recording.gradient`
    written_out: Read | None = None  # by the model's own code, from which its heads are known in the end
    difference: tuple[list[Entry], Tensor] | None = None  # the softmaxes, and the factor of what is subtracted

    def read(self) -> Weights:
        """Return the weights, of all entries once the `vmap` they were recorded in is over."""
        if self.written_out is not None and self.written_out.heads is not None:
            self.weights = Weights.from_tensor(self.written_out.parted(self.weights.dense()))
            self.written_out = None
        self.weights = after_transforms(self.weights)
        return self.weights


class Recording(Mapping[str, Weights]):
    """What was attended to, in order of execution: module path -> `Weights`.

    The first call of the module ``encoder.attention`` has the key ``"encoder.attention"``, the next
    ``"encoder.attention#1"``, and so on; ``tape["encoder.attention", 1]`` is the same, and
    ``tape.calls("encoder.attention")`` lists them all. The model itself is ``"."``. A module registered
    under several names has the first. Further weights of a mechanism have a suffix after a colon: ``"path:read"`` and
    ``"path:write"`` of a memory, ``"path:left"`` and ``"path:right"`` of a pair.
    """

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._by_paths: dict[str, list[Entry]] | None = None
        self._watched = Calls()
        self._projections: Projections | None = None

    @property
    def paths(self) -> list[str]:
        """Each path once, in order of its first call."""
        return list(self._by_path())

    @property
    def missed(self) -> dict[str, str]:
        """The modules that look like attention and were not recorded, or not whole: path -> reason.

        What looks like attention is told by the names of classes, and by softmaxes in the model's own code.
        """
        return self._watched.missed(self.paths)

    def calls(self, path: str) -> list[Weights]:
        """Return the weights of every call of this path."""
        return [entry.read() for entry in self._entries_of(path)]

    def difference(self, path: str, call: int = 0) -> Weights:
        """Return the signed weights that a differential attention read with: one softmax minus a multiple of another.

        Their entropy is NaN, and views refuse them: numbers below 0 share nothing out.
        """
        found = [entry.difference for entry in self._entries_of(path) if entry.difference is not None]
        if not found:
            raise ConfigError(
                f"Recording.difference: {path!r} read with its softmax, expected a differential attention. Its weights "
                f"are tape[{path!r}]."
            )
        entries, factor = found[call]
        return difference([entry.read() for entry in entries], factor)

    def gradient(self, path: str, call: int = 0) -> Tensor | None:
        """Return the gradient of what was called backward on, with respect to the weights of a call, in their shape.

        A fused call has no weights of its own: its output is ``weights · values``, projected or not, so the gradient is
        that of the output times the values. None if the block was opened without ``gradients``, if `backward` has not
        reached the call, or if a fused call has dropped weights out.
        """
        entry = self._entry(path, call)
        gradient = None if entry.flow is None else entry.flow.gradient()
        # A fused kernel has an axis of heads where the mechanism has one head, and its weights none.
        extra = gradient is not None and gradient.dim() > len(entry.read().shape)
        return gradient.squeeze(-3) if gradient is not None and extra else gradient

    @property
    def keeps_values(self) -> bool:
        """Whether it was recorded with ``values=True``."""
        return self._projections is not None

    def projected(self, path: str, call: int = 0) -> Projected:
        """Return the values ``(B, H, S, K)`` that a call read, and the output projection they went through, by head.

        Raises:
            ConfigError: the block was opened without ``values``, or they cannot be known.
        """
        entry = self._entry(path, call)
        if self._projections is None:
            raise ConfigError("Recording.projected: values were not kept. Record with foci.record(model, values=True).")
        weights = entry.read().dense().detach()
        number = [id(one) for one in self._entries_of(entry.path)].index(id(entry))
        return self._projections.of(entry.path, number, weights.unsqueeze(1) if weights.dim() == 3 else weights)

    def heads(
        self,
        query: Wanted,
        key: Wanted,
        tokens: Sequence[str] | None = None,
        sources: Sequence[str] | None = None,
        *,
        row: int = 0,
        top: int | None = 10,
    ) -> HeadRanking:
        """Return the heads that read one word from another, ranked by their weight.

        Args:
            query: what reads: a position; a word, at any of its positions, of which the one with the largest weight
                counts; or a word and which of its positions, ``("it", 1)``.
            key: what is read, likewise.
            tokens: what stands at each position, which words need. Searched are the attentions with as many rows.
            sources: of cross-attention what stands at each position that is read. Default: the tokens.
            row: which entry of the batch.
            top: how many heads; None for all.

        Example:
            >>> import torch, foci
            >>> attention = foci.build("multi_head", model_dim=4, num_heads=2)
            >>> with foci.record(attention) as tape:
            ...     output = attention(torch.zeros(1, 3, 4), torch.zeros(1, 3, 4))
            >>> tape.heads("it", "animal", ["the", "animal", "it"])
            .  head 0   0.33  2 → 1
            .  head 1   0.33  2 → 1
        """
        if tokens is None and not (isinstance(query, int) and isinstance(key, int)):
            raise ConfigError(
                f"Recording.heads: {query!r} and {key!r} are words, and no tokens were given. Give what stands at each "
                "position: tokens=[…]; or give positions."
            )
        sources = tokens if sources is None else sources
        searched = []
        for path, weights in self.items():
            sizes = weights.shape[-2:]
            if len(weights.shape) in (3, 4) and all(
                given is None or len(given) == size for given, size in zip((tokens, sources), sizes)
            ):
                labels = [given or [""] * size for given, size in zip((tokens, sources), sizes)]
                heads = range(weights.shape[1] if len(weights.shape) == 4 else 1)
                searched.append(Searched(path, heads, functools.partial(_rows, weights, row), *labels))
        if not searched:
            shapes = sorted({tuple(weights.shape) for weights in self.values()})
            raise ConfigError(
                f"Recording.heads: there are {len(tokens or ())} tokens and {len(sources or ())} sources, expected "
                f"as many as weights have rows and columns: {shapes}. Give a label for each row and column."
            )
        return search("Recording.heads", searched, query, key, top)

    def __getitem__(self, key: str | tuple[str, int]) -> Weights:
        return self._entry(*(key if isinstance(key, tuple) else (key, 0))).read()

    def __iter__(self) -> Iterator[str]:
        counts: dict[str, int] = {}
        for entry in self._entries:
            number = counts[entry.path] = counts.get(entry.path, -1) + 1
            yield f"{entry.path}#{number}" if number else entry.path

    def __len__(self) -> int:
        return len(self._entries)

    def check_not_empty(self, owner: str) -> None:
        """Raise an error that says why there may be nothing on the tape, if there is nothing."""
        if not self._entries:
            raise ConfigError(f"{owner}: the recording is empty. {self.why_empty}")

    @property
    def why_empty(self) -> str:
        """Why nothing may have been recorded."""
        return self._watched.why_empty()

    def __repr__(self) -> str:
        count = len(self)
        lines = [f"Recording of {count} attention{'' if count == 1 else 's'}"]
        missed = self.missed
        width = max((len(path) for path in (*self.paths, *missed)), default=0)
        for path, calls in self._by_path().items():
            shape = str(tuple(calls[0].read().shape))
            if len(calls) > 1:
                shape += f" … {tuple(calls[-1].read().shape)}, {len(calls)} calls"
            lines.append(f"  {path:<{width}}  {shape}")
        if not count:
            lines.append(f"  {self.why_empty}")
        if missed:
            lines += [
                "Not recorded, or not whole",
                *(f"  {path:<{width}}  {reason}" for path, reason in missed.items()),
            ]
        return "\n".join(lines)

    def _by_path(self) -> dict[str, list[Entry]]:
        if self._by_paths is None:
            self._by_paths = {}
            for entry in self._entries:
                self._by_paths.setdefault(entry.path, []).append(entry)
        return self._by_paths

    def _entry(self, path: str, call: int) -> Entry:
        """Return a call by its path and number, or by its key, "path#2"."""
        path, number = (path, call) if call else _split(path)
        calls = self._entries_of(path)
        if not -len(calls) <= number < len(calls):
            raise UnknownNameError(f"unknown call {number} of {path!r}. Its calls are 0 to {len(calls) - 1}.")
        return calls[number]

    def _entries_of(self, path: str) -> list[Entry]:
        entries = self._by_path().get(spelled(path))
        if entries is None:
            raise self._unknown(path)
        return entries

    def _unknown(self, path: str) -> UnknownNameError:
        if not self._entries:
            return UnknownNameError(f"unknown path {path!r}. {self.why_empty}")
        reason = self.missed.get(spelled(path))
        if reason is not None:
            return UnknownNameError(f"{path!r} was not recorded: {reason}.")
        return unknown_name("path", path, self.paths)

    def _add(self, entry: Entry) -> Entry:
        self._entries.append(entry)
        self._by_paths = None
        return entry

    def _subtracts(self, entries: list[Entry], factor: Tensor) -> None:
        """Take the calls of one differential attention together."""
        weights = [entry.read() for entry in entries]
        kept = [entries[number] for number in distinct(weights)]
        for entry in entries:
            if entry not in kept:
                self._drop(entry)
        if can_subtract([entry.weights for entry in kept]):
            path = kept[0].path
            kept[0].difference = kept, factor if kept[0].weights.source.requires_grad else factor.detach()
            self._watched.subtracting.add(path)

    def _drop(self, entry: Entry) -> None:
        self._entries.remove(entry)
        self._by_paths = None


def _rows(weights: Weights, row: int, at: Positions) -> Tensor:
    """Return some rows ``(H, n, S)`` of an entry of the batch."""
    found = weights.rows(torch.tensor(at))[row].detach()
    return found if found.dim() == 3 else found.unsqueeze(0)


def spelled(path: str) -> str:
    """Return the path as the tape writes it: the model itself may be "" too, as in `named_modules`."""
    return ROOT + path if path[:1] in ("", ":") else path


def _split(key: str) -> tuple[str, int]:
    """``"path#2"`` -> ``("path", 2)``."""
    path, mark, number = key.rpartition("#")
    return (path, int(number)) if mark and number.isdecimal() and number[0] != "0" else (key, 0)
