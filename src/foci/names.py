"""The names that mechanisms, their parts and methods are chosen by, as types: a misspelled one is a type error.

tests/test_builders.py compares them with the tables that the names are looked up in.
"""

from collections.abc import Mapping
from typing import Literal, TypeVar

Family = Literal["attend", "pool", "pair", "memory", "map"]
"""The families of mechanisms, by their call signature; see docs/design.md."""

ScoreAlias = Literal["bahdanau", "mlp", "luong", "bilinear", "chorowski"]
"""What people call scores: the keys of `SCORE_ALIASES`."""

ScoreName = Literal[
    "dot", "scaled_dot", "general", "additive", "concat", "cosine", "location", "location_aware", ScoreAlias
]
"""The scores of `foci.Attention`: the keys of `foci.mechanisms.scores.SCORES`, and their aliases."""

SCORE_ALIASES: Mapping[str, str] = {
    "bahdanau": "additive",
    "mlp": "additive",
    "luong": "general",
    "bilinear": "general",
    "chorowski": "location_aware",
}

DotScoreName = Literal["scaled_dot", "dot", "cosine"]
"""The scores without parameters, those of `foci.attend` and of multi-head attention."""

NormalizerAlias = Literal["entmax", "reinforce"]
"""The keys of `NORMALIZER_ALIASES`."""

NormalizerName = Literal["softmax", "sigmoid", "sparsemax", "entmax15", "hard", "sample", "gumbel", NormalizerAlias]
"""The keys of `foci.functional.attend.NORMALIZERS`, and their aliases."""

NORMALIZER_ALIASES: Mapping[str, str] = {"entmax": "entmax15", "reinforce": "sample"}

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

Symmetrization = Literal["intersection", "union", "grow-diag", "grow-diag-final", "grow-diag-final-and"]
"""How the word alignments of two directions are joined, by `foci.metrics.alignments.symmetrize`."""


Named = TypeVar("Named")


def settled(given: Named, aliases: Mapping[str, str]) -> Named:
    """Return a name instead of its alias; all else, such as a part of one's own, as it is.

    Example:
        >>> settled("bahdanau", SCORE_ALIASES)
        'additive'
    """
    return aliases.get(given, given) if isinstance(given, str) else given  # type: ignore[return-value]
