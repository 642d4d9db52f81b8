"""Steps of a Transformer's decoder in one call of the C++ kernel ``decoder_step``, with the weights packed for it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from foci.functional.kernels import decoder_step as kernel
from foci.functional.mean_square import EPSILON
from foci.functional.positions import alibi_slopes
from foci.layers.capped_linear import CappedLinear
from foci.layers.incremental.quantized_linear import QuantizedLinear
from foci.layers.incremental.tree_cache import TreeCache
from foci.layers.transformer import DecoderLayer
from foci.mechanisms.heads.multi_head import ProjectedMemory

MOST_ROWS = 256
"""Number of rows up to which the kernel is used: it was faster at every number that was measured, up to 160."""


def can_compile(layers: Sequence[DecoderLayer], output: nn.Module, rows: int) -> bool:
    """Return whether the kernel has all that these layers do, for this number of rows."""
    if rows > MOST_ROWS or not kernel.is_active():
        return False
    parts = [output, *(part for layer in layers for part in layer.modules())]
    parameters = [parameter for part in parts for parameter in part.parameters()]
    return (
        not any(isinstance(part, QuantizedLinear) for part in parts)
        and all(layer.feed_forward.activation in kernel.ACTIVATIONS for layer in layers)
        and all(parameter.dtype == torch.float32 and parameter.is_cpu for parameter in parameters)
    )


class CompiledSteps:
    """The layers, norm and output of a decoder as the kernel reads them, with their current weights.

    Args:
        layers: the decoder's layers, for which `can_compile` holds.
        norm: the norm after the last layer, or an identity.
        output: the output layer.
    """

    def __init__(self, layers: Sequence[DecoderLayer], norm: nn.Module, output: nn.Linear) -> None:
        self._kept: list[Tensor | None] = []  # the kernel has addresses only
        first = layers[0].self_attention
        self._layers = (kernel.Layer * len(layers))(*(self._layer(layer) for layer in layers))
        self._hidden = layers[0].feed_forward.inner_layer.out_features
        self._alibi, self._slopes = first.alibi, alibi_slopes(first.num_heads)
        has_norm = isinstance(norm, nn.LayerNorm | nn.RMSNorm)
        self._step = kernel.Step(
            layers=len(layers),
            heads=first.num_heads,
            size=first.model_dim // first.num_heads,
            norm_first=layers[0].around_self.first,
            activation=kernel.ACTIVATIONS[layers[0].feed_forward.activation],
            slopes=self._slopes.data_ptr(),
            unit_epsilon=EPSILON if first.qk_norm else -1.0,
            cap=output.cap if isinstance(output, CappedLinear) else 0.0,
            norm=self._norm(norm) if isinstance(norm, nn.LayerNorm | nn.RMSNorm) else kernel.Norm(),
            has_norm=has_norm,
            output=self._product(output),
        )

    def __call__(
        self,
        x: Float[Tensor, "N D"],
        sources: Sequence[ProjectedMemory],
        batch: int,
        cache: TreeCache,
        turn: Tensor | None,
    ) -> tuple[Float[Tensor, "N V"], Float[Tensor, "B H K size"]]:
        """Take one step; ``x`` is overwritten with the input of the output layer.

        Args:
            x: the embedded tokens.
            sources: the source as each layer reads it; empty without a source.
            batch: number of sources, or of first hypotheses without a source.
            cache: the cache of this step, grown already.
            turn: the rotation of each pair of features as complex numbers, for rotary positions.

        Returns:
            The logits, and the last layer's queries of the source, if there is one.
        """
        step = self._step
        step.sources, step.hypotheses, step.past_length = batch, x.shape[0] // batch, cache.entries
        step.position = cache.steps - 1
        step.threads = torch.get_num_threads()
        path = None if cache.mask is None else cache.mask.contiguous()
        positions = cache.positions.contiguous() if self._alibi and cache.positions is not None else None
        valid = None
        if sources:
            step.source_length = sources[0].key.shape[2]
            valid = None if sources[0].mask is None else sources[0].mask.contiguous()
        step.turn = None if turn is None else turn.data_ptr()
        step.path = None if path is None else path.data_ptr()
        step.positions = None if positions is None else positions.data_ptr()
        step.valid = None if valid is None else valid.data_ptr()
        for number, layer in enumerate(self._layers):
            room = cache.reserve(number)
            layer.keys, layer.values, layer.room = room.key.data_ptr(), room.value.data_ptr(), room.key.shape[2]
            if sources:
                source = sources[number]
                layer.source_keys, layer.source_values = source.key.data_ptr(), source.value.data_ptr()
        logits, queries = kernel.run(step, self._layers, x, self._hidden)
        return logits, queries.view(batch, step.hypotheses, step.heads, step.size).transpose(1, 2)

    def _layer(self, layer: DecoderLayer) -> kernel.Layer:
        itself, cross, feed_forward = layer.self_attention, layer.cross_attention, layer.feed_forward
        compiled = kernel.Layer(
            self_norm=self._norm(layer.around_self.norm),
            inner_norm=self._norm(layer.around_feed_forward.norm),
            project=self._product(itself.query_layer, itself.key_layer, itself.value_layer),
            join=self._product(itself.output_layer),
            inner=self._product(feed_forward.inner_layer),
            outer=self._product(feed_forward.outer_layer),
        )
        if cross is not None and layer.around_cross is not None:
            compiled.source_norm = self._norm(layer.around_cross.norm)
            compiled.query = self._product(cross.query_layer)
            compiled.join_source = self._product(cross.output_layer)
        return compiled

    def _product(self, *layers: nn.Linear) -> kernel.Product:
        """Layers with the same input as one product."""
        weights = torch.cat([layer.weight.detach() for layer in layers])
        bias = None if layers[0].bias is None else torch.cat([layer.bias.detach() for layer in layers])
        product, kept = kernel.packed(weights, bias)
        self._kept += kept
        return product

    def _norm(self, norm: nn.LayerNorm | nn.RMSNorm) -> kernel.Norm:
        gain, shift = norm.weight, norm.bias if isinstance(norm, nn.LayerNorm) else None
        self._kept += (gain, shift)
        addresses = (None if one is None else one.data_ptr() for one in (gain, shift))
        return kernel.Norm(*addresses, isinstance(norm, nn.LayerNorm), 1e-6 if norm.eps is None else norm.eps)
