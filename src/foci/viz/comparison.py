"""Two traces side by side: two checkpoints, two models, two sentences.

compare(before, after, ("epoch 1", "epoch 9")).save_html("change.html")
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from foci.errors import ConfigError
from foci.viz.trace import Trace


@dataclass(frozen=True)
class Comparison:
    """Two traces and what each is called; see `compare`."""

    first: Trace
    second: Trace
    titles: tuple[str, str]

    @property
    def names(self) -> tuple[str, ...]:
        """The attentions that both have."""
        return tuple(name for name in self.first.attentions if name in self.second.attentions)

    def difference(self, name: str, head: int | None = None) -> NDArray[np.float32]:
        """Return ``(L, S)``: the weights of the second minus those of the first, of one head or the mean over heads.

        Raises:
            ConfigError: the two have different axes, so that there is nothing to subtract.
        """
        first, second = self.first.attention(name), self.second.attention(name)
        for one, other in ((first.target, second.target), (first.source, second.source)):
            if self.first.axes[one].labels != self.second.axes[other].labels:
                raise ConfigError(f"compare: the axes of {name!r} differ between the traces, expected the same labels.")
        change: NDArray[np.float32] = second.dense(head) - first.dense(head)
        return change

    def save_html(self, path: str | os.PathLike[str]) -> Path:
        """Write one page with both traces and, where they have the same axes, their difference."""
        from foci.viz.page.trace_page import write

        return write(path, [self.first, self.second], self.titles)


def compare(first: Trace, second: Trace, titles: tuple[str, str] = ("first", "second")) -> Comparison:
    """Put two traces beside each other. Attentions of the same name belong together.

    Args:
        first, second: the traces; their axes may differ.
        titles: what each is called.

    Raises:
        ConfigError: no attention of the one has the name of one of the other, or the titles are the same.

    Example:
        >>> before = Trace.from_arrays([[0.5, 0.5]], ["das", "Haus"], ["house"])
        >>> after = Trace.from_arrays([[0.25, 0.75]], ["das", "Haus"], ["house"])
        >>> compare(before, after).difference("attention").tolist()
        [[-0.25, 0.25]]
    """
    if titles[0] == titles[1]:
        raise ConfigError(f"compare: both traces are called {titles[0]!r}, expected two different titles.")
    both = Comparison(first, second, titles)
    if not both.names:
        raise ConfigError(
            f"compare: no attention has the same name in both: {', '.join(first.attentions) or 'none'} and "
            f"{', '.join(second.attentions) or 'none'}."
        )
    return both
