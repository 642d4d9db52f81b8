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
        name: of the attention. Default: that of the trace's opening.
        head: place of the head. Default: the mean of all; where no attention was named either, the head of the opening.
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
        if self.name is not None:
            return [self.trace.attention(self.name)]
        found = self.trace.opening
        last = self.trace.cross_attentions()
        return (
            last if found.attention == last[0].name and found.head is None else [self.trace.attention(found.attention)]
        )

    @property
    def place(self) -> int | None:
        """The place of the head that is shown; None for the mean of all."""
        return self.trace.opening.head if self.is_default else self.head

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
        mean: NDArray[np.float32] = np.mean([attention.dense(self.place) for attention in self.attentions], axis=0)
        return mean

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
        if self.name is None and self.place is None:
            notes.append(self.trace.default_note)
        if self.place is None and self.attention.heads > 1:
            notes.append(f"mean of {self.attention.heads} heads")
        elif self.attention.heads > 1 or self.attention.selected:
            notes.append(f"head {self.attention.head_numbers[self.place or 0]}")
        if self.is_default:
            notes.append(self.trace.opening.note)
        return [note for note in notes if note]

    @property
    def hidden_note(self) -> str:
        """How much weight lay on positions that were hidden; empty if none were."""
        if self.attention.hidden is None:
            return ""
        share = np.mean(self.attention.hidden if self.place is None else self.attention.hidden[self.place])
        return f"{share:.0%} of the weight hidden"
