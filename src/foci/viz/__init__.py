"""Pictures of weights. What is drawn are arrays and labels; nothing here knows a model."""

from foci.viz.comparison import compare
from foci.viz.heatmap import heatmap

__all__ = ["compare", "heatmap"]
