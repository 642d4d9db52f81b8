"""Attention with more than one reader: several heads side by side, or several steps."""

from foci.mechanisms.heads.multi_head import KeyValueCache, MultiHeadAttention
from foci.mechanisms.heads.multi_step import MultiStepAttention

__all__ = ["KeyValueCache", "MultiHeadAttention", "MultiStepAttention"]
