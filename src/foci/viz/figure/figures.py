"""The figure that every picture is drawn on: matplotlib's, which notebooks also show without a magic command."""

from __future__ import annotations

import io

from matplotlib.figure import Figure

_NOTEBOOK_DPI = 144
_CSS_DPI = 96
"""Pixels per inch that a browser counts with: the picture is shown at its size in print."""


class NotebookFigure(Figure):
    """A figure that Jupyter shows as a PNG wherever it is the value of a cell."""

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        raw = io.BytesIO()
        self.savefig(raw, format="png", dpi=_NOTEBOOK_DPI, bbox_inches="tight")
        data = raw.getvalue()
        # Bytes 16 to 24 of a PNG are its width and height.
        width, height = (int.from_bytes(data[start : start + 4], "big") for start in (16, 20))
        return data, {"width": width * _CSS_DPI // _NOTEBOOK_DPI, "height": height * _CSS_DPI // _NOTEBOOK_DPI}
