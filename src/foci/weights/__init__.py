"""Handles on exact attention weights."""

from foci.weights.handle import Weights

__all__ = ["Weights"]
