"""Mechanisms that read two sequences together: ``m(left, right, left_mask=None, right_mask=None)``."""

from foci.mechanisms.pair.attention_over_attention import AttentionOverAttention
from foci.mechanisms.pair.word_by_word import WordByWord

__all__ = ["AttentionOverAttention", "WordByWord"]
