"""The names that mechanisms and their parts are chosen by, as types: a misspelled one is a type error.

tests/test_builders.py compares them with the tables that the names are looked up in.
"""

from typing import Literal

Family = Literal["attend", "pool", "pair", "memory", "map"]
"""The families of mechanisms, by their call signature; see docs/design.md."""

ScoreName = Literal["dot", "scaled_dot", "general", "additive", "concat", "cosine", "location", "location_aware"]
"""The scores of `foci.Attention`: the keys of `foci.mechanisms.scores.SCORES`."""

DotScoreName = Literal["scaled_dot", "dot", "cosine"]
"""The scores without parameters, those of `foci.attend` and of multi-head attention."""

NormalizerName = Literal["softmax", "sigmoid", "sparsemax", "entmax15", "hard", "sample", "gumbel"]
"""The keys of `foci.functional.attend.NORMALIZERS`."""

FocusName = Literal["global", "causal", "sliding_window", "local_m", "local_p", "median_window"]
"""The keys of `foci.mechanisms.focus.FOCUSES`."""

RelativeName = Literal["t5", "shaw", "transformer_xl"]
"""The biases by distance of multi-head attention."""

NormName = Literal["rms", "layer"]
"""The norms with a gain of its queries and keys: the keys of `foci.mechanisms.heads.head_options.NORMS`."""

SinkName = Literal["learned", "zero"]
"""The scores of its position that holds nothing."""

GateName = Literal["elementwise", "headwise"]
"""The gates of its output."""
