"""What the heads of a trace do."""

from __future__ import annotations

from typing import NamedTuple

from foci.metrics.heads import RoleScore, role_of, role_scores
from foci.viz.trace import TopWeights, Trace


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
        tokens = axis.labels if axis.is_text else None
        scores = role_scores(attention.weights, tokens, self_attention=among)
        found += [
            HeadRole(attention.name, head, role_of(one), one) for head, one in zip(attention.head_numbers, scores)
        ]
    return HeadRoles(found, left_out)
