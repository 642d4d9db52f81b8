"""Mechanisms that reduce a sequence to one vector: ``m(value, mask=None)``."""

from foci.mechanisms.pool.hierarchical import HierarchicalPool, HierarchicalWeights
from foci.mechanisms.pool.pool import AttentionPool

__all__ = ["AttentionPool", "HierarchicalPool", "HierarchicalWeights"]
