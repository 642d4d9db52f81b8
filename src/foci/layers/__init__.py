"""Blocks that are not attention."""

from foci.layers.positions import LearnedPositions, SinusoidalPositions

__all__ = ["LearnedPositions", "SinusoidalPositions"]
