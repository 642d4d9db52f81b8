"""What of a trace a view shows."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from foci.viz.axis import Axis
from foci.viz.screen import Screen
from foci.viz.trace import Trace, TracedAttention


@dataclass(frozen=True, eq=False)
class Selection:
    """An attention of a trace, and where it is shown.

    Args:
        trace: what is shown of.
        name: of the attention. Default: the trace's cross-attentions.
        head: number of the head. Default: their mean.
        form: of the view: "figure" or "terminal".
        screen: what the terminal can show.
        top: how many positions a row of a ranked list names.
        most_rows: how many rows a terminal shows; None for all.
    """

    trace: Trace
    name: str | None = None
    head: int | None = None
    form: str = "figure"
    screen: Screen = field(default_factory=Screen)
    top: int = 3
    most_rows: int | None = None

    @cached_property
    def attentions(self) -> list[TracedAttention]:
        """The attentions whose mean is shown."""
        return self.trace.cross_attentions() if self.name is None else [self.trace.attention(self.name)]

    @property
    def attention(self) -> TracedAttention:
        """The first of them."""
        return self.attentions[0]

    @property
    def is_default(self) -> bool:
        """Whether neither an attention nor a head was asked for."""
        return self.name is None and self.head is None

    @cached_property
    def weights(self) -> NDArray[np.float32]:
        """The weights ``(L, S)`` that are shown."""
        return self.trace.alignment(self.name) if self.head is None else self.attention.dense(self.head)

    @property
    def target(self) -> Axis:
        """The axis of the rows."""
        return self.trace.axes[self.attention.target]

    @property
    def source(self) -> Axis:
        """The axis of the columns."""
        return self.trace.axes[self.attention.source]

    @property
    def rows(self) -> int:
        """How many rows are shown."""
        return len(self.target) if self.most_rows is None else min(self.most_rows, len(self.target))

    @property
    def notes(self) -> list[str]:
        """What else could have been shown: other layers, single heads."""
        notes = [self.trace.measure] if "relevance" in self.trace.metadata else []
        if self.name is None:
            notes.append(self.trace.default_note)
        if self.attention.heads > 1:
            notes.append(f"mean of {self.attention.heads} heads" if self.head is None else f"head {self.head}")
        return [note for note in notes if note]

    @property
    def hidden_note(self) -> str:
        """How much weight lay on positions that were hidden; empty if none were."""
        if self.attention.hidden is None:
            return ""
        share = np.mean(self.attention.hidden if self.head is None else self.attention.hidden[self.head])
        return f"{share:.0%} of the weight hidden"
