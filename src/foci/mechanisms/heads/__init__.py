"""Attention with several heads in parallel, or with several steps."""

from foci.mechanisms.heads.multi_head import KeyValueCache, MultiHeadAttention
from foci.mechanisms.heads.multi_step import MultiStepAttention

__all__ = ["KeyValueCache", "MultiHeadAttention", "MultiStepAttention"]
