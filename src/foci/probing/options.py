"""How to probe: options that import no torch, for the help of the command."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge

from foci.errors import ConfigError
from foci.settings import settings


@settings
class Options:
    """How to probe."""

    attentions_only: bool = False
    """Leave out single heads: probe the mean of the heads of each attention."""
    each_token: bool = False
    """Of a run whose answers have several tokens: probe what each of them read, for that token alone. Each counts as an
    input."""
    trials: Annotated[int, Ge(1)] = 20
    """Random orders of erasing, which are chance."""
    permutations: Annotated[int, Ge(0)] = 5
    """Random permutations of the weights; 0 leaves out what other weights would do."""
    steps: Annotated[int, Ge(0)] = 40
    """Steps of the search for quite different weights that leave the answer where it is; 0 leaves it out."""
    batch_size: Annotated[int, Ge(1)] = 32
    """Variants of an input that are answered together."""
    seed: Annotated[int, Ge(0)] = 0
    """Seed of everything random."""

    def __post_init__(self) -> None:
        if self.steps and not self.permutations:
            raise ConfigError("probe: steps needs permutations, whose weights are changed too. Set steps=0 as well.")
