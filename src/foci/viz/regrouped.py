"""Traces with other positions: pieces joined to words, special tokens and sinks left out.

    joined   weights are summed over the pieces of what is read, and averaged over the pieces that read
    hidden   some positions are left out, what remains of a row is scaled to its former sum, and the share that lay on
             them is kept beside it

Positions that lie in a picture or a recording are not left out: their weight is set to 0.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from foci.errors import ConfigError, unknown_name
from foci.viz.axis import WORDED, Axis, Mark
from foci.viz.kept_weights import BUDGET, TopWeights, TracedAttention
from foci.viz.trace import Trace
from foci.viz.words import BEGINS, Word

SINK = 0.3
"""A position that has this much of the weight of all rows is a sink."""
_OVER_EVEN = 3
"""It also has this many times what an even spread would give it: in a short text every position has much."""
_SURE = 1e-6
"""A smaller part of a row is rounding."""
_NUMBERED = ("slots", "steps", "tags", "channels")
"""Kinds of positions that are none of a text, a picture or a recording, and are not hidden."""


def join_words(trace: Trace) -> Trace:
    """Return the trace with a position for each word; see `Trace.join_words`."""
    sizes = {key: [word.pieces for word in axis.joined_words] for key, axis in trace.axes.items()}
    axes = {key: _joined_axis(axis) for key, axis in trace.axes.items()}
    attentions = {
        name: joined_attention(attention, sizes[attention.target], sizes[attention.source])
        for name, attention in trace.attentions.items()
    }
    return replace(trace, axes=axes, attentions=attentions)


def _joined_axis(axis: Axis) -> Axis:
    if axis.parts is not None:
        return Axis.from_parts([_joined_axis(part) for part in axis.parts], axis.title)
    words = axis.joined_words
    if all(word.pieces == 1 for word in words) and axis.words is None and axis.kind not in WORDED:
        return axis
    home = np.repeat(np.arange(len(words)), [word.pieces for word in words])
    labels = tuple(word.label for word in words)
    special = {int(home[place]) for place in axis.special_tokens}  # a special token is a word of its own
    sentences = None
    if axis.sentences is not None:
        ends = np.cumsum([0, *axis.sentences])
        sentences = tuple(len({*home[begin:end].tolist()}) for begin, end in pairwise(ends))
    return replace(
        axis,
        labels=labels,
        words=tuple(Word(label, 1) for label in labels) if axis.kind in WORDED else None,
        special=tuple(sorted(special)) if axis.kind in WORDED else None,
        sentences=sentences,
        marks=None if axis.marks is None else _joined_marks(axis.marks, home),
    )


def _joined_marks(marks: Sequence[Mark], home: NDArray[np.int64]) -> tuple[Mark, ...]:
    """Marks of words; of several in one word the surest stays."""
    found: list[Mark] = []
    for mark in marks:
        moved = mark._replace(first=int(home[mark.first]), last=int(home[mark.last]))
        if found and moved.first <= found[-1].last:
            found[-1] = max(found[-1], moved, key=lambda one: one.share)
        else:
            found.append(moved)
    return tuple(found)


def joined_attention(attention: TracedAttention, rows: Sequence[int], columns: Sequence[int]) -> TracedAttention:
    """Return the attention with fewer rows and columns, each of which stands for this many of the old ones.

    Weights are summed over columns, and averaged over rows.
    """

    def averaged(values: NDArray[np.float32], axis: int) -> NDArray[np.float32]:
        shape = [1] * values.ndim
        shape[axis] = -1
        means = np.add.reduceat(values, _starts(rows), axis=axis) / np.array(rows).reshape(shape)
        rounded: NDArray[np.float32] = means.astype(np.float32)
        return rounded

    def joined(weights: NDArray[np.float32]) -> NDArray[np.float32]:
        return averaged(np.add.reduceat(weights, _starts(columns), axis=-1), -2)

    if max(rows, default=1) == 1 and max(columns, default=1) == 1:
        return attention
    extras = {name: joined(extra) for name, extra in attention.extras.items()}
    hidden = None if attention.hidden is None else averaged(attention.hidden, -1)
    kept = attention.weights
    if not isinstance(kept, TopWeights):
        return replace(attention, weights=joined(kept), extras=extras, hidden=hidden)
    k = max(1, min(len(columns), BUDGET // (2 * attention.heads * len(rows))))
    best = [_largest(joined(attention.dense(head)), k) for head in range(attention.heads)]
    values, indices = (np.stack(parts) for parts in zip(*best))
    total = np.stack([joined(attention.dense(head)).sum(-1) for head in range(attention.heads)])
    rest = averaged(kept.rest, -1) + total - values.sum(-1)
    unknown = np.full(rest.shape, np.nan, np.float32)  # the entropy of words needs every weight
    weights = TopWeights(values, indices, rest.clip(min=0).astype(np.float32), unknown, len(columns))
    return replace(attention, weights=weights, extras=extras, hidden=hidden)


def _starts(sizes: Sequence[int]) -> list[int]:
    return [0, *accumulate(sizes)][:-1]


def _largest(weights: NDArray[np.float32], k: int) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    order = np.argsort(-weights, axis=-1, kind="stable")[..., :k]
    return np.take_along_axis(weights, order, axis=-1), order.astype(np.int32)


def hide(trace: Trace, *, special: bool, sinks: bool, tokens: Collection[str]) -> Trace:
    """Return the trace without some positions; see `Trace.hide`."""
    places = hidden_places(trace, special=special, sinks=sinks, tokens=tokens)
    if not any(places.values()):
        asked = " or ".join([*["special tokens"] * special, *["sinks"] * sinks, *map(repr, sorted(tokens))])
        raise ConfigError(
            f"Trace.hide: there are no {asked or 'positions asked for'} in this trace. Nothing is hidden."
        )
    labels = [axis.labels[place] for key, axis in trace.axes.items() for place in sorted(places[key])]
    metadata = {**trace.metadata, "hidden": ", ".join(dict.fromkeys(labels))}
    axes, kept = {}, {}
    for key, axis in trace.axes.items():
        left_out = places[key] & axis.word_positions
        kept[key] = [place for place in range(len(axis)) if place not in left_out]
        if not kept[key]:
            raise ConfigError(f"Trace.hide: all positions of {key!r} would be hidden. Hide fewer.")
        axes[key] = _without(axis, kept[key])
    attentions = {
        name: _hidden(one, kept[one.target], kept[one.source], places[one.source])
        for name, one in trace.attentions.items()
    }
    return replace(trace, axes=axes, attentions=attentions, metadata=metadata)


def hidden_places(trace: Trace, *, special: bool, sinks: bool, tokens: Collection[str] = ()) -> dict[str, set[int]]:
    """Return the positions to hide of each axis."""
    found: dict[str, set[int]] = {key: set() for key in trace.axes}
    for key, axis in trace.axes.items():
        if special:
            found[key] |= {*axis.special_tokens}
        if sinks:
            found[key] |= {*sinks_of(trace, key)}
        labels = {place: axis.labels[place] for place in axis.word_positions}
        found[key] |= {place for place, label in labels.items() if {label, _plain(label)} & {*tokens}}
    known = {_plain(axis.labels[place]) for axis in trace.axes.values() for place in axis.word_positions}
    for token in tokens:
        if _plain(token) not in known:
            raise unknown_name("token to hide", token, known)
    return found


def _plain(label: str) -> str:
    """Return a label without the mark of its beginning, if anything else is in it."""
    return label.lstrip("".join(BEGINS)) or label


def sinks_of(trace: Trace, key: str) -> list[int]:
    """Return the positions of an axis that take much weight of nearly every row, whatever it is about.

    A position counts by its mean weight over all attentions that read the axis, their heads, and the rows that can
    read it and are not itself. It is a sink from `SINK` on, if it also is three times what rows would give it that
    spread their weight evenly.

    Paper: When Attention Sink Emerges in Language Models (Gu et al., 2024), whose threshold of a head is 0.3
    """
    axis = trace.axes[key]
    reading = [one for one in trace.attentions.values() if one.source == key and not one.derived]
    if axis.kind in _NUMBERED or not reading:
        return []
    mean, even = np.zeros(len(axis)), np.zeros(len(axis))
    for one in reading:
        weights = one.dense()
        open_ = weights > 0
        if one.source == one.target:
            open_ &= ~np.eye(len(axis), dtype=bool)
        count = open_.sum(axis=0).clip(min=1)
        mean += (weights * open_).sum(axis=0) / count / len(reading)
        each = 1 / (weights > 0).sum(axis=1).clip(min=1)
        even += (open_ * each[:, None]).sum(axis=0) / count / len(reading)
    return [int(place) for place in np.flatnonzero((mean >= SINK) & (mean >= _OVER_EVEN * even))]


def _without(axis: Axis, kept: Sequence[int]) -> Axis:
    """Return the axis with these positions alone."""
    if axis.parts is not None:
        inside = [
            (part, [place - start for place in kept if start <= place < start + len(part)])
            for start, part in axis.placed_parts
        ]
        return Axis.from_parts([_without(part, places) for part, places in inside if places], axis.title)
    if len(kept) == len(axis):
        return axis
    new = {place: number for number, place in enumerate(kept)}
    words = []
    start = 0
    for word in axis.joined_words:
        pieces = sum(place in new for place in range(start, start + word.pieces))
        words += [Word(word.label, pieces)] * (pieces > 0)
        start += word.pieces
    sentences = None
    if axis.sentences is not None:
        ends = np.cumsum([0, *axis.sentences])
        sentences = tuple(sum(place in new for place in range(*ends[k : k + 2])) for k in range(len(axis.sentences)))
    marks = None
    if axis.marks is not None:
        moved = [(mark, [new[k] for k in range(mark.first, mark.last + 1) if k in new]) for mark in axis.marks]
        marks = tuple(mark._replace(first=places[0], last=places[-1]) for mark, places in moved if places)
    return replace(
        axis,
        labels=tuple(axis.labels[place] for place in kept),
        words=tuple(words),
        special=tuple(new[place] for place in axis.special_tokens if place in new),
        sentences=sentences,
        marks=marks,
    )


def _hidden(attention: TracedAttention, rows: list[int], columns: list[int], places: set[int]) -> TracedAttention:
    """Return the attention with these rows and columns, and without the weight on some of the columns."""
    gone = sorted(places)
    extras = {}
    for name, extra in attention.extras.items():
        cleared = extra[rows].copy()
        cleared[:, gone] = 0
        extras[name] = np.ascontiguousarray(cleared[:, columns])
    kept = attention.weights
    weights: NDArray[np.float32] | TopWeights
    if isinstance(kept, TopWeights):
        weights, share = _hidden_top(kept, rows, columns, gone)
    else:
        cleared = kept[:, rows].copy()
        before = cleared.sum(-1)
        cleared[..., gone] = 0
        after = cleared.sum(-1)
        weights = np.ascontiguousarray(_scaled(cleared, before, after)[..., columns])
        share = _share(before, after)
    already = 0 if attention.hidden is None else attention.hidden[:, rows]
    hidden = (already + (1 - already) * share).astype(np.float32)
    return replace(attention, weights=weights, extras=extras, hidden=hidden)


def _hidden_top(
    kept: TopWeights, rows: list[int], columns: list[int], gone: list[int]
) -> tuple[TopWeights, NDArray[np.float32]]:
    """Return the rows and columns of weights of which the largest were kept, and the share of each row that is gone."""
    values, indices, rest, entropy = (part[:, rows] for part in kept[:4])
    lost = np.isin(indices, gone)
    before = values.sum(-1) + rest
    after = before - np.where(lost, values, 0).sum(-1)
    k = max(1, values.shape[-1] - int(lost.sum(-1).max(initial=0)))  # as many are left in every row
    order = np.argsort(np.where(lost, 1, -values), axis=-1, kind="stable")[..., :k]
    new = np.zeros(kept.size, np.int32)
    new[columns] = np.arange(len(columns))
    left = np.take_along_axis(np.where(lost, 0, values), order, axis=-1)
    scaled = _scaled(left, before, after)
    others = (before * (after > _SURE * before) - scaled.sum(-1)).clip(min=0).astype(np.float32)
    # −Σ p log p of what is left, scaled; without every hidden weight it is unknown.
    logs = np.where(lost, values * np.log(np.where(lost & (values > 0), values, 1)), 0).sum(-1)
    size = np.where(after > _SURE * before, after, 1)
    exact = (entropy + logs) / size + np.log(size)
    left_entropy = np.where(lost.sum(-1) == len(gone), exact, np.nan).astype(np.float32)
    places = np.take_along_axis(new[indices], order, axis=-1)
    return TopWeights(scaled, places, others, left_entropy, len(columns)), _share(before, after)


def _scaled(
    weights: NDArray[np.float32], before: NDArray[np.float32], after: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Return rows whose sum was reduced, with the sum that they had; one of which nothing is left stays 0."""
    left = after > _SURE * before
    factor = np.where(left, before / np.where(left, after, 1), 0)
    scaled: NDArray[np.float32] = (weights * factor[..., None]).astype(np.float32)
    return scaled


def _share(before: NDArray[np.float32], after: NDArray[np.float32]) -> NDArray[np.float32]:
    share: NDArray[np.float32] = ((before - after) / np.where(before > 0, before, 1)).clip(0, 1).astype(np.float32)
    return share
