"""Location-aware score: additive attention with features of the previous step's weights around each position.

    f_i = F ∗ α_{i−1}
    e_ij = wᵀ tanh(W s_{i−1} + V h_j + U f_ij + b)
    α_ij = exp(β e_ij) / Σ exp(β e_ij)      (sharpening; smoothing puts σ in the place of exp)

Paper: Attention-Based Models for Speech Recognition (Chorowski et al., 2015), sections 2.2 and 2.3, arXiv:1506.07503
Names: s_{i−1} = query, h_j = key, α_{i−1} = state, W = query_layer, V = key_layer,
    F = filters, U = filter_layer, w = vector, β = sharpening
Complexity: O(S · Dk · A) once per source, then O(S · (kernel_size · filters + filters · A + A)) per step
Differs: before the first step there is no alignment: f is 0, and a window around its median is the whole source.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from foci.errors import check_odd, check_sizes
from foci.functional.stepwise import StepOptions, add_location, over_steps, read_location_aware, share_source
from foci.mechanisms.parts import Reading
from foci.mechanisms.scores.additive import Additive
from foci.mechanisms.scores.score import read_weights, split_mask
from foci.outputs import AttentionOutput
from foci.tracing import known_true
from foci.weights import Weights


class LocationAware(Additive):
    """The additive score with a term for the previous weights; `foci.Attention` computes the L queries in order.

    Args:
        query_dim: size of the query.
        key_dim: size of the key.
        hidden_dim: size of the hidden layer. Default: the query's.
        num_filters: how many filters are convolved with the previous weights.
        kernel_size: how many positions a filter covers; odd.

    Example:
        >>> import torch
        >>> score = LocationAware(3, 5, 7, num_filters=2, kernel_size=3)
        >>> key = score.project_key(torch.zeros(2, 11, 5))
        >>> score.condition(key, torch.ones(2, 11)).shape
        torch.Size([2, 11, 7])
    """

    remembers = True

    def __init__(
        self,
        query_dim: int,
        key_dim: int,
        hidden_dim: int | None = None,
        *,
        num_filters: int = 10,
        kernel_size: int = 101,
    ) -> None:
        super().__init__(query_dim, key_dim, hidden_dim, bias=True)
        check_sizes("LocationAware", num_filters=num_filters)
        check_odd("LocationAware", kernel_size=kernel_size)
        self.filters = nn.Conv1d(1, num_filters, kernel_size, padding=kernel_size // 2, bias=False)
        self.filter_layer = nn.Linear(num_filters, self.vector.shape[0], bias=False)

    @property
    def location_parameters(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return w, F and U, the arguments of `foci.functional.stepwise.location_aware`."""
        return self.vector, self.filters.weight, self.filter_layer.weight

    def prepare(self, key: Float[Tensor, "#B S A"], value: Float[Tensor, "#B S V"]) -> Tensor | None:
        """Return the alias of the keys by which all reads add up their gradients."""
        return share_source(key, value)

    def _read_steps(
        self, reading: Reading, previous: Tensor, mask: tuple[Tensor, ...], options: StepOptions
    ) -> AttentionOutput:
        query, memory = reading.projected, reading.memory
        source = (memory.key, *self.location_parameters)
        per_query, shared = split_mask(mask)
        if reading.bias is not None:
            at = (query, reading.bias.expand(-1, query.shape[1], -1), *per_query)
            return read_weights(
                reading, *over_steps("biased_location_aware", previous, at, (*source, *shared), options)
            )
        if known_true(query.shape[1] == 1) and not reading.dropout:
            read = read_location_aware(previous, query, (*source, *mask), memory.value, options, memory.prepared)
            if read is not None:
                return AttentionOutput(read[0], Weights.from_tensor(read[1]), read[1].squeeze(1))
        steps = over_steps("location_aware", previous, (query, *per_query), (*source, *shared), options)
        return read_weights(reading, *steps)

    def condition(self, key: Float[Tensor, "#B S A"], previous: Float[Tensor, "#B S"]) -> Float[Tensor, "#B S A"]:
        """Return the projected keys with ``U f`` added, to be scored with this step's query."""
        return add_location(key, previous, self.filters.weight, self.filter_layer.weight)
