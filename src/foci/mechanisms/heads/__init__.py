"""Attention with several heads in parallel, to all positions or to a few points of a picture, or with several steps."""

from foci.functional.rotary_options import Rotary
from foci.mechanisms.heads.cache import KeyValueCache, PreallocatedCache, SlidingCache
from foci.mechanisms.heads.conditional import ConditionalAttention
from foci.mechanisms.heads.deformable import DeformableAttention, DeformableWeights
from foci.mechanisms.heads.multi_head import MultiHeadAttention
from foci.mechanisms.heads.multi_step import MultiStepAttention

__all__ = [
    "ConditionalAttention",
    "DeformableAttention",
    "DeformableWeights",
    "KeyValueCache",
    "MultiHeadAttention",
    "MultiStepAttention",
    "PreallocatedCache",
    "Rotary",
    "SlidingCache",
]
