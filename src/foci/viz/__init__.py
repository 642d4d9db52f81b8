"""Views of attention. What is drawn are arrays and labels; nothing here knows a model."""

from importlib import import_module
from typing import TYPE_CHECKING

__all__ = ["compare", "heatmap"]

if TYPE_CHECKING:
    from foci.viz.comparison import compare
    from foci.viz.figure.heatmap import heatmap
else:

    def __getattr__(name):
        """Import what is used: a prediction that is not drawn needs neither."""
        modules = {"compare": "foci.viz.comparison", "heatmap": "foci.viz.figure.heatmap"}
        if name not in modules:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(modules[name]), name)
