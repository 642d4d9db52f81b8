"""What every picture shares: style, colors, fonts for its labels, and files that appear whole."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from foci.errors import ConfigError, MissingPackageError, unknown_name
from foci.files import whole
from foci.viz import labels as texts
from foci.viz.colors import HATCH, STOPS
from foci.viz.trace import TracedAttention
from foci.viz.zeros import zeros_on_purpose

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.colors import Colormap, Normalize
    from matplotlib.figure import Figure as Figure
    from matplotlib.image import AxesImage

FORMATS = ("png", "svg", "pdf")
SCALES = ("all", "row")
SIZE = 9.0
"""Of the letters, in points."""
SIZE_IN_COLUMN = 8.0
"""The same in a figure of a given width, which is printed at that width."""
LONGEST = 28
"""Letters of a label; longer ones are cut. A Chinese character counts as two."""
LONGEST_TITLE = 100
NARROWEST = 1.5
"""The least width of a figure in inches: less has no room for labels and a scale."""
COLUMN = 4.6
"""A figure at most this wide has its bar of colors below: at the side it would take too much."""

_STYLE: Any = {
    "text.parse_math": False,  # a label with two $ is no formula
    "pdf.fonttype": 42,
    "svg.fonttype": "none",  # text stays text: it can be searched, copied and edited
    "svg.hashsalt": "foci",
    "hatch.linewidth": 0.6,
}


@dataclass(frozen=True)
class FigureStyle:
    """How weights are drawn.

    Args:
        width: of the figure in inches, as a paper's column has it; default: what suits the content.
        scale: "all": the largest weight of all is the darkest; "row": the largest of each row is.
        gamma: the exponent of the scale of colors; below 1 brings out small weights.
        missing: characters of the labels that no installed font has.
    """

    width: float | None = None
    scale: str = "all"
    gamma: float = 1.0
    missing: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.width is not None and not NARROWEST <= self.width < math.inf:
            raise ConfigError(f"plot: width is {self.width}, expected at least {NARROWEST} (inches).")
        if self.scale not in SCALES:
            raise unknown_name("scale", self.scale, SCALES)
        if not 0 < self.gamma < math.inf:
            raise ConfigError(f"plot: gamma is {self.gamma}, expected a number above 0.")

    @property
    def size(self) -> float:
        """The size of letters in points."""
        return SIZE if self.width is None else SIZE_IN_COLUMN

    def scaled(self, weights: NDArray[Any]) -> NDArray[Any]:
        """Return the weights, or with "row" their shares of the largest in their row (the last axis)."""
        if self.scale == "all":
            return weights
        largest = weights.max(axis=-1, keepdims=True, initial=0.0)
        shares: NDArray[Any] = weights / np.where(largest > 0, largest, 1.0)
        return shares

    def title(self, scale: str) -> str:
        """Return what the scale of colors is called."""
        return scale if self.scale == "all" else f"{scale} / largest in its row"

    def norm(self, lowest: float, highest: float) -> Normalize:
        """Return matplotlib's mapping from weights to shares of the scale."""
        from matplotlib.colors import Normalize, PowerNorm

        if self.gamma == 1.0:
            return Normalize(lowest, highest)
        return PowerNorm(self.gamma, lowest, highest)

    def text(self, text: str, longest: int = LONGEST) -> str:
        """Return what can be drawn of a text, with the fonts there are.

        What is invisible is shown, missing characters are written as their number (U+4E2D: better than a box), and long
        texts are cut.
        """
        return self.label(text, longest) if text else ""

    def label(self, label: str, longest: int = LONGEST) -> str:
        """Do the same with the label of a position, which has a mark if it is empty."""
        numbers = {ord(character): f"U+{ord(character):04X}" for character in self.missing}
        return texts.cut(texts.untoned(texts.shown(label)).translate(numbers), longest)


@contextmanager
def drawing(labels: Iterable[str], style: FigureStyle | None = None) -> Iterator[FigureStyle]:
    """In this block figures are drawn in the common style, with fonts that have the characters of these labels.

    Every text must go through `FigureStyle.text` or `FigureStyle.label` of the style that the block is given.
    """
    style = style or FigureStyle()
    size = style.size
    try:
        import matplotlib
    except ImportError as error:
        raise MissingPackageError("drawing needs matplotlib. Install it with: pip install 'foci[viz]'") from error
    from foci.viz.figure.fonts import choose

    families, missing = choose("".join(texts.untoned(texts.shown(label)) for label in labels))
    settings = _STYLE | {"font.family": families, "font.size": size, "axes.titlesize": size, "legend.fontsize": size}
    settings |= {"axes.labelsize": size, "xtick.labelsize": size, "ytick.labelsize": size}
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # marks are looked for in the first font too
        yield replace(style, missing=frozenset(missing))


def check_path(owner: str, path: str | os.PathLike[str]) -> Path:
    """The path, if its ending is of a kind that can be written."""
    path = Path(path)
    if path.suffix[1:].lower() not in FORMATS:
        raise ConfigError(f"{owner}: path is {path.name!r}, expected a name that ends in .{', .'.join(FORMATS)}.")
    return path


def save(figure: Figure, path: Path, *, keep_width: bool = False) -> None:
    """Write the figure; equal figures give equal files.

    Args:
        figure: what is drawn.
        path: where it goes.
        keep_width: cut off what is empty above and below, but not at the sides: the picture is as wide as the figure.
    """
    from matplotlib.transforms import Bbox

    kind = path.suffix[1:].lower()
    undated: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    area: Any = "tight"
    if keep_width:
        used = figure.get_tightbbox()
        area = Bbox([[0.0, used.y0 - 0.03], [figure.get_figwidth(), used.y1 + 0.03]])
    with whole(path) as unfinished:
        figure.savefig(unfinished, format=kind, dpi=150, bbox_inches=area, metadata=undated.get(kind))


def new_figure(width: float, height: float, layout: Literal["constrained", "compressed"] | None = None) -> Figure:
    """Return an empty figure of this size in inches, which a notebook shows."""
    from foci.viz.figure.figures import NotebookFigure

    return NotebookFigure(figsize=(width, height), layout=layout)


def colors() -> Colormap:
    """Return the colors of weights; a masked cell is transparent, so that the hatched ground is seen."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("foci", STOPS).with_extremes(bad=(1, 1, 1, 0))


def draw_map(axes: Axes, weights: NDArray[Any], norm: Normalize, **options: Any) -> AxesImage:
    """Draw weights as colored cells; where they are 0 on purpose, the hatched ground is seen."""
    zeros = zeros_on_purpose(weights)
    if zeros.any():
        axes.patch.set(facecolor="white", edgecolor=HATCH, hatch="////", linewidth=0)
    masked = np.ma.masked_where(zeros, weights)
    return axes.imshow(masked, cmap=colors(), norm=norm, interpolation="nearest", **options)


def scale_label(scale: str, hatched: str, weights: NDArray[Any]) -> str:
    """Return what the colors mean, and what hatching means where there is any."""
    return f"{scale}  (hatched: {hatched})" if zeros_on_purpose(weights).any() else scale


def meaning_of_zero(attentions: Iterable[TracedAttention]) -> str:
    """Return what it means that a weight reads 0."""
    return "exactly 0" if all(attention.is_exact for attention in attentions) else "0 or too small to be kept"


def bare(axes: Axes) -> None:
    """No frame, no ticks."""
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
