"""What every picture shares: style, colours, fonts for its labels, and files that appear whole.

Colours are those of viridis, which stay in order for colour-blind eyes and in grey print. A weight of exactly 0
(masked, outside of a window, cut off by a sparse normaliser) is light grey, so that it is not taken for a small one.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from foci.errors import ConfigError, MissingPackageError
from foci.files import whole
from foci.viz import labels as texts
from foci.viz.trace import TracedAttention

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

FORMATS = ("png", "svg", "pdf")
ZERO_COLOUR = "#e6e6e6"
LETTER = 0.075
"""How wide a letter is, in inches."""
LONGEST = 28
"""Letters of a label; longer ones are cut. A Chinese character counts as two."""
LONGEST_TITLE = 100

_LINE = 0.14
"""How much room a label needs to stand clear of the next one, in inches."""
_RUNNING_OUT = 1e-20
"""A softmax in float32 that has so small a weight may have others that it could not tell from 0."""
_MOST_LABELS = 64
_STYLE: Any = {
    "font.size": 9,
    "axes.titlesize": 9,
    "text.parse_math": False,  # a label with two $ is no formula
    "pdf.fonttype": 42,
    "svg.hashsalt": "foci",
}


@dataclass(frozen=True)
class Spelling:
    """Makes of a label what can be drawn of it with the fonts there are."""

    missing: frozenset[str]
    """The characters that no installed font has."""

    def __call__(self, label: str, longest: int = LONGEST) -> str:
        """Show what is invisible, spell missing characters as their number (U+4E2D: better than a box), and cut."""
        if not label:
            return ""
        spelt = {ord(character): f"U+{ord(character):04X}" for character in self.missing}
        return texts.cut(texts.untoned(texts.shown(label)).translate(spelt), longest)


@contextmanager
def drawing(labels: Iterable[str]) -> Iterator[Spelling]:
    """In this block figures are drawn in the common style, with fonts that have the characters of these labels.

    Every label must go through the `Spelling` that the block is given.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise MissingPackageError("drawing needs matplotlib. Install it with: pip install 'foci[viz]'") from error
    from foci.viz.fonts import choose

    families, missing = choose("".join(texts.untoned(texts.shown(label)) for label in labels))
    with matplotlib.rc_context(_STYLE | {"font.family": families}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # marks are looked for in the first font too
        yield Spelling(frozenset(missing))


def check_path(owner: str, path: str | os.PathLike[str]) -> Path:
    """The path, if its ending is of a kind that can be written."""
    path = Path(path)
    if path.suffix[1:].lower() not in FORMATS:
        raise ConfigError(f"{owner}: path is {path.name!r}, expected a name that ends in .{', .'.join(FORMATS)}.")
    return path


def save(figure: Figure, path: Path) -> None:
    """Write the figure; equal figures give equal files."""
    kind = path.suffix[1:].lower()
    undated: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    with whole(path) as unfinished:
        figure.savefig(unfinished, format=kind, dpi=150, bbox_inches="tight", metadata=undated.get(kind))


def colours() -> Colormap:
    """Viridis, and grey for what is masked out."""
    from matplotlib import colormaps

    return colormaps["viridis"].with_extremes(bad=ZERO_COLOUR)


def label_axis(axis: Any, labels: list[str], cell: float, *, tilted: bool = False) -> None:
    """Write the labels of cells that are ``cell`` inches apart, or of many only some; none without labels."""
    axis.set_tick_params(length=0)
    line = _LINE * math.sqrt(2) if tilted else _LINE  # lines that lean are nearer to each other than their ends
    step = max(1, -(-len(labels) // _MOST_LABELS), round(line / max(cell, 1e-3) + 0.49))
    turned = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if tilted else {}
    axis.set_ticks(range(0, len(labels), step), labels[::step], **turned)


def zeros_masked(weights: NDArray[Any]) -> Any:
    """The weights with a mask over those that are 0 on purpose.

    A softmax whose scores lie far apart runs out of numbers: its smallest weights are 0 by accident, beside others that
    are all but 0. In such rows nothing is masked.
    """
    smallest = np.where(weights > 0, weights, 1.0).min(axis=-1, keepdims=True, initial=1.0)
    return np.ma.masked_where((weights == 0) & (smallest > _RUNNING_OUT), weights)


def scale_label(scale: str, grey: str, weights: NDArray[Any]) -> str:
    """What the colours mean, and the grey where there is any."""
    return f"{scale}  (grey: {grey})" if zeros_masked(weights).mask.any() else scale


def meaning_of_grey(attentions: Iterable[TracedAttention]) -> str:
    """What it means that a weight reads 0."""
    return "exactly 0" if all(attention.is_exact for attention in attentions) else "0 or too small to be kept"


def bare(axes: Axes) -> None:
    """No frame, no ticks."""
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
