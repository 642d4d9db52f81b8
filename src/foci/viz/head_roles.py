"""What the heads of a trace do, and the head that says most."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from foci.metrics.heads import RoleScore, role_of, role_scores, selectivity
from foci.viz.trace import TopWeights, Trace, TracedAttention


class HeadRole(NamedTuple):
    """What a head does.

    Attributes:
        name: the attention.
        head: the number of the head.
        role: one of `foci.metrics.heads.ROLES`, None if none is clear.
        scores: of each role that could be measured the score, its chance and the place it is about.
    """

    name: str
    head: int
    role: str | None
    scores: dict[str, RoleScore]

    @property
    def score(self) -> RoleScore | None:
        """That of its role."""
        return None if self.role is None else self.scores[self.role]


class HeadRoles(list[HeadRole]):
    """Heads in the order of the trace; prints as a table of those with a role.

    Attributes:
        left_out: attentions of which the trace has not all weights.
    """

    def __init__(self, found: list[HeadRole], left_out: list[str]) -> None:
        super().__init__(found)
        self.left_out = left_out

    def __repr__(self) -> str:
        clear = [(one, one.scores[one.role]) for one in self if one.role is not None]
        width = max((len(one.name) for one, _ in clear), default=0)
        lines = [
            f"{one.name:<{width}}  head {one.head:<3} {one.role:<10}  {score.score:.2f}  (chance {score.chance:.2f})"
            + ("" if score.place is None else f"  {'offset' if one.role == 'positional' else 'position'} {score.place}")
            for one, score in clear
        ]
        others = len(self) - len(clear)
        lines.append(f"{others} head{'' if others == 1 else 's'} with no clear role")
        if self.left_out:
            lines.append(f"left out, since not all weights were kept: {', '.join(self.left_out)}")
        return "\n".join(lines)


def head_roles(trace: Trace) -> HeadRoles:
    """Return what each head does; see `foci.metrics.heads`.

    Example:
        >>> import numpy as np
        >>> head_roles(Trace.from_arrays([np.eye(6, k=-1), np.full((6, 6), 1 / 6)], list("abcdef")))
        attention  head 0   previous    1.00  (chance 0.17)
        1 head with no clear role
    """
    found, left_out = [], []
    for attention in trace.attentions.values():
        if isinstance(attention.weights, TopWeights):
            left_out.append(attention.name)
            continue
        axis = trace.axes[attention.source]
        among = attention.source == attention.target
        tokens = axis.labels if axis.kind in ("tokens", "document") else None
        scores = role_scores(attention.weights, tokens, self_attention=among)
        found += [
            HeadRole(attention.name, head, role_of(one), one) for head, one in zip(attention.head_numbers, scores)
        ]
    return HeadRoles(found, left_out)


def telling_head(trace: Trace, roles: HeadRoles) -> tuple[TracedAttention, int] | None:
    """Return the attention and the place of the head that says most, None where there is nothing to choose.

    That is the head where what is read depends most on who reads (`foci.metrics.heads.selectivity`), among those
    between two sides if there are any. Heads that read by position say little, and are taken where there are no others.
    """
    candidates = [one for one in trace.attentions.values() if isinstance(one.weights, np.ndarray)]
    across = [one for one in candidates if one.source != one.target and not one.derived]
    candidates = across or candidates
    if sum(one.heads for one in candidates) < 2 or any(_is_special(trace, one) for one in candidates):
        return None
    by_position = {(one.name, one.head) for one in roles if one.role in ("previous", "positional", "sink")}
    found = []
    for attention in candidates:
        for place, says in enumerate(selectivity(np.asarray(attention.weights))):
            plain = (attention.name, attention.head_numbers[place]) not in by_position
            found.append((plain, float(says), attention, place))
    _, _, attention, place = max(found, key=lambda one: one[:2])
    return attention, place


def _is_special(trace: Trace, attention: TracedAttention) -> bool:
    return any(trace.axes[key].kind != "tokens" for key in (attention.source, attention.target))
