"""Normalizers by name: how one unit of attention is shared out over the positions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from jaxtyping import Bool, Float
from torch import Tensor

from foci.functional import attend
from foci.functional.sample import Drawn
from foci.mechanisms.parts import Normalizer

_WITHOUT_CHANCE = {"sample": "best", "gumbel": "mode"}
"""What is read outside of training: the best position, without sampling."""
_FUNCTIONS = {**attend.NORMALIZERS, **attend.WITHOUT_CHANCE}


class NamedNormalizer:
    """A normalizer of `foci.functional.attend.NORMALIZERS`, without parameters.

    Example:
        >>> import torch
        >>> NamedNormalizer("hard")(torch.tensor([[1.0, 3.0]]), None, True)[0]
        tensor([[0., 1.]])
    """

    def __init__(self, name: str) -> None:
        self.name: str | None = name
        self.evaluation_name = _WITHOUT_CHANCE.get(name, name)
        self._training, self._evaluation = _FUNCTIONS[name], _FUNCTIONS[self.evaluation_name]

    def __call__(
        self, scores: Float[Tensor, "... L S"], mask: Bool[Tensor, "..."] | None, training: bool
    ) -> tuple[Float[Tensor, "... L S"], Tensor | None] | Drawn:
        """Return the weights and, of what was sampled, the log-probability and the probabilities; None without."""
        return (self._training if training else self._evaluation)(scores, mask)

    def __repr__(self) -> str:
        return repr(self.name)


NORMALIZERS: dict[str, Callable[[], Normalizer]] = {name: partial(NamedNormalizer, name) for name in attend.NORMALIZERS}
"""Name -> builder."""
