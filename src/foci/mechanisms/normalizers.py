"""Normalizers by name, and of one's own: how one unit of attention is shared out over the positions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from jaxtyping import Bool, Float
from torch import Tensor, nn

from foci.functional import attend
from foci.functional.own_parts import check_takes, name_of, own_weights
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
        self.name = name
        self.evaluation_name = _WITHOUT_CHANCE.get(name, name)
        self._training, self._evaluation = _FUNCTIONS[name], _FUNCTIONS[self.evaluation_name]

    def __call__(
        self, scores: Float[Tensor, "... L S"], mask: Bool[Tensor, "..."] | None, training: bool
    ) -> tuple[Float[Tensor, "... L S"], Tensor | None] | Drawn:
        """Return the weights and, of what was sampled, the log-probability and the probabilities; None without."""
        return (self._training if training else self._evaluation)(scores, mask)

    def for_steps(self, training: bool) -> str:
        """Return how `foci.functional.stepwise` calls it."""
        return self.name if training else self.evaluation_name

    def __repr__(self) -> str:
        return repr(self.name)


class NormalizerFunction(nn.Module):
    """A normalizer of one's own, a function or a module, whose parameters are trained.

    Example:
        >>> import torch
        >>> NormalizerFunction(lambda scores, mask: scores.softmax(dim=-1))(torch.zeros(1, 2), None, True)
        (tensor([[0.5000, 0.5000]]), None)
    """

    name = None

    def __init__(self, function: Normalizer) -> None:
        super().__init__()
        check_takes("normalizer", function, "scores", "mask")
        self.function = function

    def forward(
        self, scores: Float[Tensor, "... L S"], mask: Bool[Tensor, "..."] | None, training: bool
    ) -> tuple[Float[Tensor, "... L S"], Tensor | None] | Drawn:
        """Return the weights, and what goes with a sample; a module knows itself if it is training."""
        return own_weights(self.function, scores, mask)

    def for_steps(self, training: bool) -> attend.Normalizer:
        """Return how `foci.functional.stepwise` calls it."""
        return partial(own_weights, self.function)

    def __repr__(self) -> str:
        return super().__repr__() if isinstance(self.function, nn.Module) else name_of(self.function)


NORMALIZERS: dict[str, Callable[[], NamedNormalizer]] = {
    name: partial(NamedNormalizer, name) for name in attend.NORMALIZERS
}
"""Name -> builder."""
