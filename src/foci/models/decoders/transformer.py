"""The decoder of the Transformer, with a source or without one (a language model).

    x = dropout(sqrt(D) E[y_<t] + PE),   then num_layers times: causal self-attention, attention to the source,
    feed-forward;   P(y_t | y_<t, source) = softmax(x_t Eᵀ)

Paper: Attention Is All You Need (Vaswani et al., 2017), sections 3.1, 3.4 and 3.5; without a source: Generating
    Wikipedia by Summarizing Long Sequences (Liu et al., 2018), section 4.2.3
Names: N = num_layers, d_model = model_dim, E = embedding.table, PE = embedding.positions
Complexity: O(N · ((T · S + T²) · D + T · D · (D + d_ff)) + T · D · V); a decoding step costs what one position does
Differs: with norm="pre" the stack ends in one more norm. Learned positions, rotary ones (Su et al., 2021) and
    ALiBi (Press et al., 2022) are options. The linear map before the softmax has no bias, as in the paper. See also
    `foci.layers.transformer`.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import torch
from jaxtyping import Int
from torch import Tensor, nn

from foci.errors import ConfigError, ShapeError, check_positive
from foci.layers.capped_linear import CappedLinear
from foci.layers.copying import CopyHead, CopyingDecoder
from foci.layers.incremental.fast_decoder_steps import FastDecoderSteps
from foci.layers.incremental.hypotheses import as_rows
from foci.layers.incremental.tree_cache import LayerEntries, TreeCache
from foci.layers.interfaces import DecoderStep, EncoderOutput, check_encoded, source_mask
from foci.layers.token_loss import Targets, TokenLogits, TokenLoss
from foci.layers.transformer import DecoderLayer, final_norm, token_embedding
from foci.mechanisms.heads.multi_head import ProjectedMemory
from foci.models.options.attention import AttentionOptions
from foci.models.options.decoders import TransformerDecoderOptions
from foci.models.options.seq2seq import check_attention
from foci.weights import Weights


class TransformerMemory(NamedTuple):
    """The sources as the steps use them, B rows.

    Attributes:
        layers: the source as each layer reads it; empty without a source.
        rows: one number per source, or per first hypothesis without a source.
        steps: the fast form of the steps; None steps through the modules.
        copied: what each position is as a target token, ``(B, S)``; None without copying.
    """

    layers: tuple[ProjectedMemory, ...]
    rows: Int[Tensor, " B"]
    steps: FastDecoderSteps | None = None
    copied: Int[Tensor, "B S"] | None = None


class TransformerDecoder(CopyingDecoder):
    """A stack of causal self-attention layers, each of which also attends to the source if there is one.

    Args:
        vocabulary: number of target tokens.
        source_dim: size of the source's positions; None for a language model.
        options: sizes and options of the layers.
        attention: score, normalizer and heads of the attention to the source. Default: scaled_dot and softmax.

    Example:
        >>> import torch
        >>> decoder = TransformerDecoder(
        ...     13, None, TransformerDecoderOptions(model_dim=6, num_heads=2, hidden_dim=8, num_layers=2)
        ... )
        >>> predicted = decoder(None, torch.tensor([[1, 4, 7]]))
        >>> predicted.logits.shape, predicted.attentions["decoder.1.self"].shape
        (torch.Size([1, 3, 13]), torch.Size([1, 2, 3, 3]))
    """

    def __init__(
        self,
        vocabulary: int,
        source_dim: int | None,
        options: TransformerDecoderOptions,
        attention: AttentionOptions | None = None,
    ) -> None:
        super().__init__()
        if options.copy and source_dim is None:
            raise ConfigError("TransformerDecoder: copy needs a source to copy from, expected source_dim.")
        check_positive("TransformerDecoder", vocabulary=vocabulary)
        attention = AttentionOptions() if attention is None else attention
        check_attention(options, attention)
        self.source_dim = source_dim
        # Of layers with and without a window the cache keeps all positions.
        self.window = None if options.window is None or options.global_every is not None else options.window[0]
        self.by_distance = options.by_distance
        self.embedding = token_embedding(
            vocabulary, options, max_length=options.max_length, scale=options.scale_embeddings
        )
        self.layers = nn.ModuleList(
            DecoderLayer(
                options.of_layer(number),
                source_dim,
                score=attention.head_score,
                normalize=attention.normalize,
                heads=attention,
                focus=attention.head_focus,
                after=attention.after,
            )
            for number in range(options.num_layers)
        )
        self.norm = final_norm(options)
        self.output = (
            nn.Linear(options.model_dim, vocabulary, bias=False)
            if options.logit_cap is None
            else CappedLinear(options.model_dim, vocabulary, cap=options.logit_cap)
        )
        if options.tie_output:
            self.output.weight = self.embedding.table.weight
        else:
            nn.init.xavier_uniform_(self.output.weight)
        self.copying = CopyHead(options.model_dim, vocabulary) if options.copy else None

    @property
    def max_length(self) -> int | None:
        """The number of learned positions; None for the other kinds, which have no limit."""
        return self.embedding.max_length

    @property
    def _layers(self) -> list[DecoderLayer]:
        return [cast(DecoderLayer, layer) for layer in self.layers]

    def forward(
        self, encoded: EncoderOutput | None, target: Int[Tensor, "B T"], targets: Targets | None = None
    ) -> TokenLogits | TokenLoss:
        """Predict by teacher forcing: ``logits[:, t]`` follow ``target[:, : t + 1]``; the loss with ``targets``."""
        check_encoded("TransformerDecoder", encoded, self.source_dim)
        key = value = mask = None
        if encoded is not None:
            _check_rows(target, encoded)
            value, mask = encoded.values, source_mask(encoded.valid)
            key = value if encoded.keys is None else encoded.keys
        attentions: dict[str, Weights] = {}
        x = self.embedding(self._readable(target))
        cross: Weights | None = None
        for number, layer in enumerate(self._layers):
            x, attentions[f"decoder.{number}.self"], cross = layer(x, key, value, mask)
            if cross is not None:
                attentions[f"decoder.{number}.cross"] = cross
        return self._predict(self.norm(x), attentions, targets, cross, self._copied("TransformerDecoder", encoded))

    def start(self, encoded: EncoderOutput | None, rows: int = 1) -> tuple[TransformerMemory, TreeCache]:
        """Project the source for every layer; return the memory and an empty cache.

        Args:
            encoded: the sources; None in a language model.
            rows: the number of hypotheses to start without a source.
        """
        check_encoded("TransformerDecoder", encoded, self.source_dim)
        device = self.embedding.table.weight.device
        memories: list[ProjectedMemory] = []
        if encoded is not None:
            rows, device = encoded.values.shape[0], encoded.values.device
            mask = source_mask(encoded.valid)
            key = encoded.values if encoded.keys is None else encoded.keys
            for layer in self._layers:
                if layer.cross_attention is not None:
                    projected = layer.cross_attention.prepare(key, encoded.values, mask)
                    key_by_head, value_by_head = projected.key.contiguous(), projected.value.contiguous()
                    memories.append(projected._replace(key=key_by_head, value=value_by_head))
        steps = FastDecoderSteps(self.embedding, self._layers, self.norm, self.output)
        copied = self._copied("TransformerDecoder", encoded)
        memory = TransformerMemory(tuple(memories), torch.arange(rows, device=device), steps, copied)
        return memory, TreeCache(len(self.layers), rows, device, window=self.window, keep_positions=self.by_distance)

    def read(self, tokens: Int[Tensor, "N P"], memory: TransformerMemory) -> TreeCache:
        """Return the state after N hypotheses have read P tokens each, computed at once, without a source.

        Args:
            tokens: P of them, at least 1; row b · K + k is hypothesis k of source b.
            memory: what `start` returned.
        """
        if self.source_dim is not None:
            raise ConfigError("TransformerDecoder: read is for decoders without a source. Use step.")
        x = self.embedding(tokens)
        entries = []
        for layer in self._layers:
            x, kept = layer.read(x)
            entries.append(LayerEntries(kept.key, kept.value))
        return TreeCache.filled(entries, memory.rows.shape[0], window=self.window, keep_positions=self.by_distance)

    def step(self, token: Int[Tensor, " N"], memory: TransformerMemory, state: TreeCache) -> DecoderStep:
        """Return the logits of what follows ``token`` in each of N hypotheses, K = N / B per source."""
        sources = memory.rows.shape[0]
        cache = state.grow(sources)
        token = self._readable(token)
        if memory.steps is not None and memory.steps.can_run(state):
            logits, cross, features = memory.steps(token, memory.layers, sources, cache)
        else:
            # All hypotheses have the same length, so one position is used for all, and the batch axis holds them.
            x = self.embedding(token.unsqueeze(1), start=state.steps)
            x = x.view(sources, max(1, token.shape[0] // max(1, sources)), x.shape[-1])
            cross = None
            for number, layer in enumerate(self._layers):
                x, cross = layer.step(x, memory.layers[number] if memory.layers else None, cache, number)
            features = self.norm(x).flatten(0, 1)
            logits = self.output(features)
        weights = None if cross is None else as_rows(cross)
        return DecoderStep(self._mixed(logits, features, weights, memory.copied), cache, weights)


def _check_rows(target: Tensor, encoded: EncoderOutput) -> None:
    batch = encoded.values.shape[0]
    if target.dim() != 2 or target.shape[0] != batch:
        raise ShapeError(
            f"TransformerDecoder: target has shape {tuple(target.shape)}, expected (batch, position) with the source's "
            f"batch of {batch}."
        )
