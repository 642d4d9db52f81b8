"""With which attention and head a trace is shown where none was asked for: those that say most.

What a head says is how much its reading depends on who reads: the mutual information of row and column in nats, where
rows that can read fewer positions are compared on these (`foci.metrics.heads.information`), and for texts that read
themselves without what each position reads of itself. A sink says nothing, equal weights say nothing, causal or not, an
alignment says much. A head that reads by position alone says much by this
measure and little to people, so it is taken only where there are no others.

Attention between two sides, where an answer reads what it was asked, comes before that within one, and that of "target"
to "source" before any other; heads between the same two sides are compared. Of objects in an image the mean of the last
layer is shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from foci.metrics.heads import CLEAR, information
from foci.viz.kept_weights import TopWeights, TracedAttention

if TYPE_CHECKING:
    from foci.viz.trace import Trace

LEAST = 0.01
"""In nats: heads that say less say nothing."""
_TIE = 1e-4
"""In nats: heads that differ less say the same."""
_BY_POSITION = ("previous", "positional", "sink")
_NOTES = {
    "most": "says most of {} heads",
    "position": "says most of {} heads, all by position",
}


class Opening(NamedTuple):
    """What a trace is shown with.

    Attributes:
        attention: its name.
        head: the place of the head that says most; None for the mean of all.
        row: the row of it that says most; None where none is.
        reason: "most"; "position", where all heads read by position; "tie", "nothing" (no head says anything) and
            "one row" of the mean of heads; "" where there was nothing to choose.
        nats: what the head says.
        among: how many heads were compared.
    """

    attention: str
    head: int | None
    row: int | None
    reason: str
    nats: float = 0.0
    among: int = 1

    @property
    def note(self) -> str:
        """Why its head is shown, in words; empty for a mean."""
        return _NOTES.get(self.reason, "").format(self.among)


def opening(trace: Trace) -> Opening:
    """Return the attention and the head that say most; the mean of the last layer where none does.

    Example:
        >>> from foci.viz.trace import Trace
        >>> blunt, sharp = np.full((2, 2), 0.5), [[0.9, 0.1], [0.1, 0.9]]
        >>> found = opening(Trace.from_arrays([blunt, sharp], ["das", "Haus"], ["the", "house"]))
        >>> found.attention, found.head, found.note
        ('attention', 1, 'says most of 2 heads')
    """
    shown = trace.cross_attentions()[0]
    last, sides = shown.name, (shown.target, shown.source)
    across = [one for one in trace.between_sides() if (one.target, one.source) == sides and one.kind != "write"]
    if trace.axes[shown.target].kind == "objects":  # its heads read parts of an object, their mean the object
        return Opening(last, None, None, "")
    candidates = [one for one in across or trace.attentions.values() if 0 not in one.shape]
    heads = sum(one.heads for one in candidates)
    if heads < 2 or "relevance" in trace.metadata:  # that of the last layer is of all layers
        return Opening(last, None, None, "")
    if all(one.shape[1] < 2 for one in candidates):
        return Opening(last, None, None, "one row", among=heads)
    by_position = set(_by_position(trace, candidates))
    found = [
        (
            (one.name, one.head_numbers[place]) not in by_position,
            float(rows.mean()),
            one.name,
            place,
            int(rows.argmax()),
        )
        for one in candidates
        for place, rows in enumerate(_said(one))
    ]
    plain, nats, name, head, row = max(found, key=lambda each: each[:2])
    equal = [other for level, says, other, *_ in found if level == plain and says > nats - _TIE]
    if nats < LEAST:
        return Opening(last, None, None, "nothing", nats, heads)
    if len(equal) > 1:
        return Opening(equal[-1], None, row, "tie", nats, heads)
    return Opening(name, head, row, "most" if plain else "position", nats, heads)


def _said(attention: TracedAttention) -> Iterator[NDArray[np.float32]]:
    """Yield what each row of each head says, in nats; weight that was not kept counts as spread evenly."""
    among = attention.source == attention.target
    readable = _within_reach(attention) if among else None
    for head in range(attention.heads):
        weights = attention.dense(head)
        if isinstance(attention.weights, TopWeights):
            others = attention.shape[2] - attention.weights.values.shape[-1]
            weights = np.where(weights > 0, weights, (attention.weights.rest[head] / max(others, 1))[:, None])
        says = information(weights, readable)
        if among:
            np.fill_diagonal(says, 0.0)
        yield says.sum(axis=-1)


def _within_reach(attention: TracedAttention) -> NDArray[np.bool_]:
    """Return which positions a row can read: those as near, to either side, as the farthest that any head reads."""
    size = attention.shape[1]
    nearness = np.subtract.outer(np.arange(size), np.arange(size))
    read = np.zeros((size, size), dtype=bool)
    for head in range(attention.heads):
        read |= attention.dense(head) > 0
    distances = nearness[read]
    if not distances.size:
        return read
    within: NDArray[np.bool_] = (distances.min() <= nearness) & (nearness <= distances.max())
    return within


def _by_position(trace: Trace, candidates: Sequence[TracedAttention]) -> Iterator[tuple[str, int]]:
    """Yield the names and numbers of heads that read by position.

    Their role says it; where weights are missing, their commonest distance.
    Between two sides there are none: what stands at the same place may be what is meant.
    """
    if candidates[0].source != candidates[0].target:
        return
    for role in trace.head_roles():
        if role.role in _BY_POSITION:
            yield role.name, role.head
    for one in candidates:
        if isinstance(one.weights, TopWeights):
            distance = one.weights.indices - np.arange(one.shape[1])[:, None] + one.shape[1]
            for place, (at, weights) in enumerate(zip(distance, one.weights.values)):
                if np.bincount(at.ravel(), weights.ravel()).max() / one.shape[1] >= CLEAR:
                    yield one.name, one.head_numbers[place]
