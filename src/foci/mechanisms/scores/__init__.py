"""Scores as modules that own their parameters: ``score(query, key) -> (B, L, S)``, alone or in `Attention`."""

from collections.abc import Callable

from foci.mechanisms.parts import Score, Sizes
from foci.mechanisms.scores.additive import Additive
from foci.mechanisms.scores.concat import Concat
from foci.mechanisms.scores.cosine import Cosine
from foci.mechanisms.scores.dot import Dot
from foci.mechanisms.scores.general import General
from foci.mechanisms.scores.location import Location
from foci.mechanisms.scores.location_aware import LocationAware
from foci.mechanisms.scores.scaled_dot import ScaledDot
from foci.mechanisms.scores.score import ScoreFunction, ScoreModule

__all__ = [
    "SCORES",
    "Additive",
    "Concat",
    "Cosine",
    "Dot",
    "General",
    "Location",
    "LocationAware",
    "ScaledDot",
    "Score",
    "ScoreFunction",
    "ScoreModule",
]

SCORES: dict[str, Callable[[Sizes], ScoreModule]] = {
    "dot": Dot.build,
    "scaled_dot": ScaledDot.build,
    "general": General.build,
    "additive": Additive.build,
    "concat": Concat.build,
    "cosine": Cosine.build,
    "location": Location.build,
    "location_aware": LocationAware.build,
}
"""Name -> builder."""
