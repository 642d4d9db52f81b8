"""Scores as modules that own their parameters: ``score(query, key) -> (B, L, S)``, alone or in `Attention`."""

from foci.mechanisms.scores.additive import Additive
from foci.mechanisms.scores.concat import Concat
from foci.mechanisms.scores.cosine import Cosine
from foci.mechanisms.scores.dot import Dot
from foci.mechanisms.scores.general import General
from foci.mechanisms.scores.location import Location
from foci.mechanisms.scores.location_aware import LocationAware
from foci.mechanisms.scores.scaled_dot import ScaledDot
from foci.mechanisms.scores.score import Score

__all__ = [
    "Additive",
    "Concat",
    "Cosine",
    "Dot",
    "General",
    "Location",
    "LocationAware",
    "ScaledDot",
    "Score",
]
