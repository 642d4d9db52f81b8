"""Views of attention. What is drawn are arrays and labels; nothing here knows a model."""

from typing import TYPE_CHECKING

from foci.lazy import attach

if TYPE_CHECKING:
    from foci.viz import trace as trace
    from foci.viz.comparison import compare as compare
    from foci.viz.figure.heatmap import heatmap as heatmap
else:
    # A prediction that is not drawn needs none of them.
    _HOMES = {"compare": "foci.viz.comparison", "heatmap": "foci.viz.figure.heatmap", "trace": "foci.viz"}
    __all__ = sorted(_HOMES)
    __getattr__, __dir__ = attach(__name__, _HOMES)
