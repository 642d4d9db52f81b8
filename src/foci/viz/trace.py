"""What a prediction looked at: two labeled axes for each attention, and the weights between them.

    trace = Trace.from_arrays(weights, ["the", "cat"], ["die", "Katze"])
    trace.print()
    trace.plot("alignment.pdf")
    trace.save("alignment")                 # alignment.json and alignment.safetensors

A trace knows no model. Rows are the positions of the target (who reads), columns those of the source (what is
read).
Weights are kept as float32, all of them up to `BUDGET` numbers an attention; beyond that, of each row the largest ones
(see `foci.viz.kept_weights`).
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from foci.errors import ConfigError, DataError, ShapeError, unknown_name
from foci.mechanisms.pool.hierarchical import HierarchicalWeights
from foci.recording.head_search import HeadRanking, HeadWeight, Searched, Wanted, search
from foci.recording.tape import ROOT
from foci.viz.axis import KINDS, Axis
from foci.viz.given_weights import Given, axes_by_size, axes_of_map, by_name, entry, is_map, joined
from foci.viz.kept_weights import BUDGET, TopWeights, TracedAttention, compact
from foci.weights import Weights

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from foci.recording import Recording
    from foci.viz.heads.opening import Opening
    from foci.viz.heads.roles import HeadRoles

__all__ = ["BUDGET", "KINDS", "Axis", "TopWeights", "Trace", "TracedAttention"]


Labels = Axis | Sequence[str] | Sequence[Sequence[str]]
"""An axis, its labels, or the words of a document, sentence by sentence."""

COPIED, P_GEN = "copied", "p_gen"
"""The attention that holds what was copied from where, and the label of the produced words' marks."""

MEASURES = {
    "rollout": "rollout",
    "gradient": "attention × gradient",
    "chefer": "relevance (Chefer)",
    "norms": "norm of weighted values",
    "value_zeroing": "value zeroing",
}
"""What the relevances of `Trace.relevance` are called."""


@dataclass(frozen=True, eq=False, repr=False)
class Trace:
    """What a prediction looked at.

    Args:
        axes: by a short key: "source", "target", "image", …
        attentions: by name.
        text: what was predicted.
        metadata: anything worth saying of it: a score, the model's name.
        probe: whether what was read mattered: `Probe.to_json` of what `foci.probe` returns.

    Example:
        >>> trace = Trace.from_arrays([[0.9, 0.1], [0.2, 0.8]], ["das", "Haus"], ["the", "house"])
        >>> trace
        Trace of 1 attention
          attention  1 head  target (2 tokens) reads source (2 tokens)
        >>> trace.alignment().round(1).tolist()
        [[0.8999999761581421, 0.10000000149011612], [0.20000000298023224, 0.800000011920929]]
    """

    axes: dict[str, Axis]
    attentions: dict[str, TracedAttention]
    text: str = ""
    metadata: dict[str, str | float] = field(default_factory=dict)
    probe: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        for name, attention in self.attentions.items():
            for axis, side in ((1, "target"), (2, "source")):
                key = getattr(attention, side)
                if key not in self.axes:
                    raise unknown_name(f"{side} of attention {name!r}", key, self.axes)
                have, want = len(self.axes[key]), attention.shape[axis]
                if have != want:
                    lines = "rows" if axis == 1 else "columns"
                    raise ShapeError(
                        f"Trace: {side} has {have} labels, but {name!r} has {want} {lines}. Expected one label for "
                        f"each: weights (…, {len(self.axes[attention.target])}, {len(self.axes[attention.source])})."
                    )

    def __repr__(self) -> str:
        count = len(self.attentions)
        lines = [f"Trace of {count} attention{'' if count == 1 else 's'}"]
        width = max(map(len, self.attentions), default=0)
        for name, attention in self.attentions.items():
            target, source = self.axes[attention.target], self.axes[attention.source]
            lines.append(
                f"  {name:<{width}}  {attention.heads} head{'' if attention.heads == 1 else 's'}  {attention.target} "
                f"({len(target)} {target.kind}) reads {attention.source} ({len(source)} {source.kind})"
            )
        return "\n".join(lines)

    @classmethod
    def from_arrays(
        cls,
        weights: ArrayLike | Tensor,
        sources: Labels,
        targets: Labels | None = None,
        *,
        name: str = "attention",
        title: str = "",
        budget: int = BUDGET,
    ) -> Trace:
        """A trace of weights that are there as an array.

        Args:
            weights: ``(L, S)``, ``(heads, L, S)`` or ``(layers, heads, L, S)``.
            sources: S labels of what is read.
            targets: L labels of who reads; for self-attention they may be left out.
            name: what the attention is called; of several layers the first is ``name.0``.
            title: what was predicted.
            budget: how many numbers are kept of each layer.
        """
        array = _as_array(weights)
        if array.ndim not in (2, 3, 4):
            raise ShapeError(
                f"Trace.from_arrays: weights has shape {array.shape}, expected (row, column), (head, row, column) or "
                "(layer, head, row, column). Take one entry of a batch, for example weights.dense()[0]."
            )
        axes = {"source": _as_axis(sources, "source")}
        if targets is not None:
            axes["target"] = _as_axis(targets, "target")
        target = "source" if targets is None else "target"
        layers = array.reshape((1,) * (4 - array.ndim) + array.shape)
        attentions = {}
        for number, layer in enumerate(layers):
            called = f"{name}.{number}" if array.ndim == 4 else name
            handle = Weights.from_tensor(torch.from_numpy(layer).unsqueeze(0))
            kept = compact(called, handle, ("target", layer.shape[1]), ("source", layer.shape[2]), budget)
            attentions[called] = TracedAttention(called, "source", target, kept)
        return cls(axes, attentions, title)

    @classmethod
    def from_handles(
        cls,
        attentions: Mapping[str, Given],
        axes: Mapping[str, Labels],
        axes_of: Mapping[str, tuple[str, str]] | None = None,
        *,
        row: int = 0,
        text: str = "",
        metadata: Mapping[str, str | float] | None = None,
        derived: Collection[str] = (),
        budget: int = BUDGET,
    ) -> Trace:
        """A trace of one row of a batch, from the handles that mechanisms and decoders give.

        Args:
            attentions: by name, handles ``(B, L, S)``, ``(B, H, L, S)`` or, of a pool, ``(B, S)``, or what a
                mechanism returned; a list is the steps of one attention, whose rows follow each other, also with a
                sliding cache, which has dropped positions. A hierarchical pool reads a document
                (`Axis.from_document`); weights of channels and places, ``(B, C, H, W)``, are the channels' of an image
                with this grid (`Axis.from_image`); a memory has ``name:read`` and ``name:write``.
            axes: each as an `Axis`, as a list of labels or, of a document, as a list of sentences. Where a handle has
                more rows or columns than there are labels, the rest is padding and is left out; that no weight falls
                on it is checked.
            axes_of: for an attention by its name, the keys ``(target, source)`` of its axes. A name may be a pattern:
                ``{"decoder.*.cross": ("target", "source")}``. Default: by the number of labels.
            row: which entry of the batch.
            text: what was predicted.
            metadata: anything worth saying of it.
            derived: names of those that the model did not compute itself; see `TracedAttention`.
            budget: how many numbers are kept of each attention.
        """
        if not isinstance(attentions, Mapping):
            raise ConfigError(
                f"Trace.from_handles: attentions is a {type(attentions).__name__}, expected a mapping of names: "
                '{"cross": weights}.'
            )
        labeled = {key: _as_axis(axis, key) for key, axis in axes.items()}
        axes_of = axes_of or {}
        handles = by_name(attentions)
        for pattern in axes_of:
            if pattern not in handles and not fnmatch.filter(handles, pattern):
                raise unknown_name("attention in axes_of", pattern, handles)
        found = {}
        for name, handle in handles.items():
            if is_map(handle.shape, labeled):
                labeled |= axes_of_map(handle.shape, labeled)
            one = entry(name, handle, row, labeled)
            patterns = [name] if name in axes_of else [each for each in axes_of if fnmatch.fnmatchcase(name, each)]
            target, source = axes_of[patterns[0]] if patterns else axes_by_size(name, one.shape, labeled)
            for key in (target, source):
                if key not in labeled:
                    raise unknown_name(f"axis of {name!r}", key, labeled)
            kept = compact(name, one, (target, len(labeled[target])), (source, len(labeled[source])), budget)
            found[name] = TracedAttention(name, source, target, kept, derived=name in derived)
        return cls(labeled, found, text, dict(metadata or {}))

    @classmethod
    def from_tape(
        cls,
        tape: Recording,
        axes: Mapping[str, Labels],
        axes_of: Mapping[str, tuple[str, str]] | None = None,
        **options: Any,
    ) -> Trace:
        """A trace of what `foci.record` saw; arguments as in `from_handles`.

        Several calls of one module are the steps of one attention: their rows follow each other. A position that was
        not there yet at a step (a decoder reading its own growing output) has weight 0. A memory's ``path:read`` and
        ``path:write`` have one row a step. Of a hierarchical pool there is the document, not each level on its own.

        Where the tape has gradients (``foci.record(model, gradients=True)``, and `backward` was called), or values
        (``values=True``), each attention has further maps, of `relevance`.
        """
        from foci.viz.relevance import with_relevance

        tape.check_not_empty("Trace.from_tape")
        if not isinstance(axes, Mapping):
            raise ConfigError(
                f"Trace.from_tape: axes is of type {type(axes).__name__}, expected labels by the name of their text: "
                '{"text": words}.'
            )
        handles = {path: joined(path, tape.calls(path)) for path in tape.paths}
        levels = [path for path, handle in handles.items() if isinstance(handle, HierarchicalWeights)]
        for pool in levels:  # its own pools have one row a sentence of the batch
            for part in ("word_pool", "sentence_pool"):
                handles.pop(part if pool == ROOT else f"{pool}.{part}", None)
        return with_relevance(cls.from_handles(handles, axes, axes_of, **options), tape, options.get("row", 0))

    def attention(self, name: str) -> TracedAttention:
        """One attention by its name; an unknown name lists the near ones."""
        if name not in self.attentions:
            raise unknown_name("attention", name, self.attentions)
        return self.attentions[name]

    def attentions_to(self, kind: str, name: str | None = None) -> list[TracedAttention]:
        """Return the attentions whose source is of this kind: all of them, or that of this name if it is one."""
        chosen = self.attentions.values() if name is None else [self.attention(name)]
        return [one for one in chosen if self.axes[one.source].kind == kind]

    def check_not_empty(self, owner: str) -> None:
        """Raise an error that says what to do if there is no attention in the trace."""
        if not self.attentions:
            raise ConfigError(
                f"{owner}: there is no attention in this trace, expected at least one. Make it of a recording that has "
                "some, Trace.from_tape(tape, axes); print(tape) says what was recorded and what was not."
            )

    def between_sides(self) -> list[TracedAttention]:
        """Return the attentions of "target" to "source"; in a trace without these axes all between two axes.

        Derived ones count where there are no others.
        """
        across = [one for one in self.attentions.values() if one.source != one.target]
        across = [one for one in across if (one.target, one.source) == ("target", "source")] or across
        return [one for one in across if not one.derived] or across

    @cached_property
    def opening(self) -> Opening:
        """The attention and the head that say most, which every view shows where none is asked for."""
        from foci.viz.heads.opening import opening

        return opening(self)

    def cross_attentions(self) -> list[TracedAttention]:
        """Return the cross-attentions of the last layer that has any.

        They are those of `between_sides`, and in a trace that has a single axis the last layer of all.
        """
        self.check_not_empty("Trace")
        across = self.between_sides()
        if not across:
            return [max(reversed(self.attentions.values()), key=_depth)]
        last = max(across, key=_depth)
        same = (last.layer, last.source, last.target)
        return [one for one in across if (one.layer, one.source, one.target) == same]

    @property
    def measure(self) -> str:
        """What the numbers are: weights, or which relevance."""
        method = str(self.metadata.get("relevance", ""))
        return MEASURES.get(method, method) or "weight"

    @property
    def default_note(self) -> str:
        """A note for views that show one of several attentions because none was named; empty if there is no other."""
        shown = self.cross_attentions()[0]
        alone = shown.source == shown.target  # then attentions of any kind were to choose from
        others = [
            one
            for one in self.attentions.values()
            if (one.source, one.target) == (shown.source, shown.target) and (alone or one.kind == shown.kind)
        ]
        if len(others) < 2:
            return ""
        return f"the last of {len(others)} {'attentions' if shown.layer is None else 'layers'}"

    def alignment(self, name: str | None = None) -> NDArray[np.float32]:
        """``(L, S)``: the mean over heads of one attention, or of `cross_attentions`."""
        chosen = self.cross_attentions() if name is None else [self.attention(name)]
        mean: NDArray[np.float32] = np.mean([attention.dense() for attention in chosen], axis=0)
        return mean

    def relevance(self, method: str = "chefer") -> Trace:
        """Return a trace with relevance instead of the weights, each row scaled to add up to 1.

        Args:
            method: "rollout" (of a stack of self-attention; from the weights alone); of tapes with gradients "gradient"
                (attention × gradient) and "chefer" (through all layers); of tapes with values "norms".

        Example:
            >>> weights = [[[0.0, 1.0], [0.0, 1.0]], [[1.0, 0.0], [1.0, 0.0]]]
            >>> trace = Trace.from_arrays([[one] for one in weights], ["a", "b"])
            >>> trace.relevance("rollout").attention("attention.1").dense().tolist()
            [[0.5, 0.5], [0.25, 0.75]]
        """
        from foci.viz.relevance import relevance

        return relevance(self, method)

    def heads(self, query: Wanted, key: Wanted, *, top: int | None = 10) -> HeadRanking:
        """Return the heads that read one word from another, ranked by their weight.

        Args:
            query: what reads: a position; a word, at any of its positions, of which the one with the largest weight
                counts; or a word and which of its positions, ``("it", 1)``. A word may be several pieces.
            key: what is read, likewise.
            top: how many heads; None for all.

        Example:
            >>> Trace.from_arrays([[[0.1, 0.9], [0.5, 0.5]], [[0.6, 0.4], [0, 1]]], ["cat", "it"]).heads("it", "cat")
            attention  head 0   0.50  1 → 0
            attention  head 1   0.00  1 → 0
        """
        searched = (
            Searched(
                one.name,
                one.head_numbers,
                one.rows,
                self.axes[one.target].labels,
                self.axes[one.source].labels,
            )
            for one in self.attentions.values()
        )
        return search("Trace.heads", searched, query, key, top)

    def head_roles(self) -> HeadRoles:
        """Return what each head does: previous token, duplicates, induction, by position, sink; or nothing clear."""
        from foci.viz.heads.roles import head_roles

        return head_roles(self)

    def with_probe(self, probe: Mapping[str, Any]) -> Trace:
        """Return the trace with what a probe found, which its page shows; ``probe`` is `Probe.to_json` of it."""
        if not isinstance(probe, Mapping) or not {"inputs", "rows"} <= {*probe}:
            raise ConfigError(
                f"Trace.with_probe: probe is a {type(probe).__name__}, expected what foci.probe(…).to_json() gives."
            )
        return replace(self, probe=probe)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write ``path.json`` (labels and metadata) and ``path.safetensors`` (numbers); returns the former's path."""
        from foci.viz import trace_files

        self.check_not_empty("Trace.save")
        return trace_files.save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Trace:
        """Read what `save` wrote, by either file's name or the name without ending."""
        from foci.viz import trace_files

        return trace_files.load(path)

    def plot(self, path: str | os.PathLike[str] | None = None, view: str | None = None, **options: Any) -> Figure:
        """Draw it, and with a path save it as PNG, SVG or PDF; views and options: `foci.viz.figure.plot.plot`."""
        from foci.viz.figure.plot import plot

        return plot(self, path, view, **options)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """Show itself in a notebook: as the page, with a picture and text where that cannot be shown."""
        from foci.viz.page.notebook import mimebundle

        return mimebundle(self, include, exclude)

    def print(self, name: str | None = None, *, file: TextIO | None = None, **options: Any) -> None:
        """Show it in the terminal; options: `foci.viz.terminal.render`."""
        from foci.viz.terminal import show

        show(self, name, file=file, **options)

    def select(self, *, layers: Sequence[int] | None = None, heads: Sequence[int] | None = None) -> Trace:
        """Return the trace with some layers and heads alone, to write less of a large one.

        Args:
            layers: numbers of layers; attentions without a number stay.
            heads: numbers of heads; attentions with one head stay as they are.

        Raises:
            ConfigError: nothing is left, or an attention has none of the heads.

        Example:
            >>> trace = Trace.from_arrays(np.full((3, 4, 2, 2), 0.5), ["a", "b"])
            >>> trace.select(layers=[2], heads=[1, 3])
            Trace of 1 attention
              attention.2  2 heads  source (2 tokens) reads source (2 tokens)
        """
        kept = {}
        for name, attention in self.attentions.items():
            if layers is not None and attention.layer is not None and attention.layer not in layers:
                continue
            if heads is not None and attention.heads > 1:
                if not set(heads) & set(attention.head_numbers):
                    raise ConfigError(
                        f"Trace.select: heads is {list(heads)}, but {name!r} has {attention.heads} (zero-based)."
                    )
                attention = attention.of_heads(heads)
            kept[name] = attention
        if self.attentions and not kept:
            known = sorted({attention.layer for attention in self.attentions.values() if attention.layer is not None})
            raise ConfigError(f"Trace.select: layers is {list(layers or ())}, but there are only {known}.")
        return replace(self, attentions=kept)

    def join_words(self) -> Trace:
        """Return the trace with a position for each word instead of each of its pieces.

        The weights on the pieces of a word are summed, and those of the pieces that read are averaged. Words are known
        from the axes (`Axis.words`), or else from the marks of pieces: ▁, Ġ, ## and bytes.

        Example:
            >>> pieces = Trace.from_arrays([[0.5, 0.2, 0.3], [0.4, 0.4, 0.2], [0.1, 0.1, 0.8]], ["▁hou", "ses", "▁red"])
            >>> words = pieces.join_words()
            >>> words.axes["source"].labels, words.alignment().round(2).tolist()
            (('houses', 'red'), [[0.75, 0.25], [0.20000000298023224, 0.800000011920929]])
        """
        from foci.viz import regrouped

        return regrouped.join_words(self)

    def hide(self, *tokens: str, special: bool = False, sinks: bool = False) -> Trace:
        """Return the trace without some positions, and what remains of each row scaled to its former sum.

        The share that lay on them is `TracedAttention.hidden`, and every view says it. Regions of a picture and frames
        of a recording stay in their places, with a weight of 0.

        Args:
            tokens: labels of what is hidden.
            special: whether special tokens are, such as <s> and [SEP].
            sinks: whether positions are that nearly every row reads, whatever it is about; often the first.

        Raises:
            ConfigError: there is nothing to hide, or nothing would be left.

        Example:
            >>> trace = Trace.from_arrays([[0.6, 0.3, 0.1]], ["<s>", "das", "Haus"], ["house"]).hide(special=True)
            >>> trace.axes["source"].labels, trace.alignment().round(2).tolist()
            (('das', 'Haus'), [[0.75, 0.25]])
            >>> trace.attention("attention").hidden.round(2).tolist()
            [[0.6000000238418579]]
        """
        from foci.viz import regrouped

        return regrouped.hide(self, special=special, sinks=sinks, tokens=tokens)

    def save_html(
        self,
        path: str | os.PathLike[str],
        *,
        layers: Sequence[int] | None = None,
        heads: Sequence[int] | None = None,
        opening: str | HeadWeight | None = None,
    ) -> Path:
        """Write one self-contained page to explore it with; it needs no network.

        Args:
            path: of the file.
            layers: as in `select`.
            heads: as in `select`.
            opening: what the page opens with: a relevance, such as "chefer", or a head that `heads` found. Default: the
                head that says most, `opening`.
        """
        from foci.viz.page.trace_page import write

        self.check_not_empty("Trace.save_html")
        return write(path, [self.select(layers=layers, heads=heads)], opening=opening)


def _depth(attention: TracedAttention) -> int:
    return -1 if attention.layer is None else attention.layer


def _as_axis(labels: Labels, title: str) -> Axis:
    if isinstance(labels, Axis):
        return labels
    shape = getattr(labels, "shape", None)
    if shape is not None:
        raise ConfigError(
            f"Trace: the axis {title!r} is an array of shape {tuple(shape)}, expected labels or an Axis. Of an image: "
            "foci.viz.Axis.from_image(image, grid)."
        )
    of_sentences = bool(labels) and all(isinstance(sentence, list | tuple) for sentence in labels)
    return Axis.from_document(labels, title) if of_sentences else Axis.from_tokens(labels, title)  # type: ignore[arg-type]


def _as_array(weights: ArrayLike | Tensor) -> NDArray[np.float32]:
    if isinstance(weights, Weights):
        raise ShapeError("Trace.from_arrays: weights is a handle. Use Trace.from_handles, or weights.dense()[0].")
    if isinstance(weights, Tensor):
        weights = weights.detach().cpu().float().numpy()
    array = np.ascontiguousarray(weights, dtype=np.float32)
    if not np.isfinite(array).all():
        raise DataError("Trace.from_arrays: weights holds NaN or an infinity, expected finite numbers.")
    if array.size and array.min() < 0:
        raise DataError("Trace.from_arrays: weights holds numbers below 0. Take them after the normalizer (softmax).")
    return array
