"""Copying words of the source: the pointer-generator, for every decoder with attention to a source.

    p_gen = σ(wᵀ f_t + b),   P(y) = p_gen · softmax(W f_t)_y + (1 − p_gen) · Σ_{i: x_i = y} α_ti

Words of a source that are not in the target vocabulary have ids of their own: V, V + 1, … in the order of their first
occurrence, for each source anew. They are read as ``<unk>`` and produced as themselves. Everything is computed in log
space, so that values and gradients are finite also where p_gen is 0 or 1.

Paper: Get To The Point: Summarization with Pointer-Generator Networks (See, Liu, Manning, 2017), eqs. 8-9
Names: p_gen = generates, w and b = gate, f_t = features (the output layer's input), α_t = weights, x_i = copied
Complexity: O(V + S) per step beside the output layer; the loss needs no probabilities of all words at once
Differs: the gate reads the input of the output layer, which is made of context, state and (Bahdanau, Cho) input word,
    instead of these three themselves, so that every decoder has the same gate. Attention with several heads copies by
    its first head. A row that attends to nothing generates with probability 1. Label smoothing spreads its share over
    the generated words alone.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from foci.checks import check_ids
from foci.errors import ConfigError
from foci.layers.interfaces import EncoderOutput
from foci.layers.token_loss import Targets, TokenLogits, TokenLoss, logits_or_loss, token_log_probs
from foci.weights import Weights

UNKNOWN = 3
"""The id of ``<unk>``, as in `foci.data.tokenizer`."""


class CopySource(NamedTuple):
    """Source tokens, and what each of them is as a target token.

    Attributes:
        tokens: what the encoder reads.
        extended: the id of the same word in the target vocabulary, or V + k for the k-th word of this source that is
            not in it. Padding may have any id.
    """

    tokens: Int[Tensor, "B S"]
    extended: Int[Tensor, "B S"]


class CopyHead(nn.Module):
    """Mixes the generated distribution with the attention to the source.

    Args:
        features_dim: size of the output layer's input.
        vocabulary: number of target tokens, V.
        unknown: the token that stands for extended ones where they are read.

    Example:
        >>> import torch
        >>> head = CopyHead(2, vocabulary=5)
        >>> weights, copied = torch.tensor([[[0.25, 0.75]]]), torch.tensor([[4, 5]])
        >>> mixed = head.mix(torch.zeros(1, 1, 5), torch.zeros(1, 1, 2), weights, copied)
        >>> mixed.shape, round(float(mixed.exp().sum()), 4)
        (torch.Size([1, 1, 6]), 1.0)
    """

    def __init__(self, features_dim: int, vocabulary: int, *, unknown: int = UNKNOWN) -> None:
        super().__init__()
        self.vocabulary, self.unknown = vocabulary, unknown
        self.gate = nn.Linear(features_dim, 1)

    def readable(self, tokens: Int[Tensor, "..."]) -> Int[Tensor, "..."]:
        """Return the tokens with extended ones replaced by the unknown token, which has an embedding."""
        return tokens.masked_fill(tokens >= self.vocabulary, self.unknown)

    def mix(
        self,
        logits: Float[Tensor, "B T V"],
        features: Float[Tensor, "B T F"],
        weights: Float[Tensor, "B T S"],
        copied: Int[Tensor, "B S"],
    ) -> Float[Tensor, "B T W"]:
        """Return log-probabilities of all V tokens and of the extended ones, −∞ where a source has no such word."""
        generate, copy, _ = self._gates(features, weights)
        logs = F.log_softmax(logits, dim=-1, dtype=generate.dtype) + generate.unsqueeze(-1)
        # Of S words at most S are not in the vocabulary: what lies outside is padding, to which nothing attends.
        copied = copied.masked_fill((copied < 0) | (copied >= self.vocabulary + copied.shape[1]), self.unknown)
        width = max(self.vocabulary, int(copied.max()) + 1) if copied.numel() else self.vocabulary
        mass = weights.new_zeros(*weights.shape[:2], width)
        mass = mass.scatter_add(2, copied.unsqueeze(1).expand(weights.shape), weights)
        copies = _safe_log(mass) + copy.unsqueeze(-1)
        known = torch.logaddexp(logs, copies[..., : self.vocabulary])
        return torch.cat([known, copies[..., self.vocabulary :]], dim=-1)

    def predict(
        self,
        features: Float[Tensor, "B T F"],
        output: nn.Module,
        attentions: dict[str, Weights],
        targets: Targets | None,
        weights: Weights,
        copied: Int[Tensor, "B S"],
    ) -> TokenLogits | TokenLoss:
        """Apply the output layer and the mixture at the end of a forward pass.

        Args:
            features: the inputs of the output layer.
            output: the output layer.
            attentions: the weights of the pass, which are returned as they are.
            targets: the tokens to predict, extended ones among them; None for log-probabilities of all tokens.
            weights: the attention to the source that is copied by.
            copied: the extended id of each position of the source.
        """
        dense = copying_head(weights).dense()
        if targets is None:
            _, _, generates = self._gates(features, dense)
            return TokenLogits(self.mix(output(features), features, dense, copied), attentions, generates)
        tokens = targets.tokens.flatten()
        known = (tokens != targets.padding).nonzero().squeeze(1)  # rows of padding are left out
        log_probs, mean = self._of_tokens(
            features.flatten(0, 1)[known],
            output,
            tokens[known],
            dense.flatten(0, 1)[known],
            copied[known.div(targets.tokens.shape[1], rounding_mode="floor")],
        )
        loss = -log_probs.sum() * (1 - targets.label_smoothing)
        if targets.label_smoothing:
            loss = loss - targets.label_smoothing * mean.sum()
        found = log_probs.new_zeros(tokens.shape).index_copy(0, known, log_probs.detach())
        return TokenLoss(loss, found.view_as(targets.tokens), attentions)

    def _of_tokens(
        self, features: Tensor, output: nn.Module, tokens: Tensor, weights: Tensor, copied: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the log-probability of each token, and the mean of those of all generated ones; N rows each."""
        generate, copy, _ = self._gates(features, weights)
        generated, mean = token_log_probs(features, output, self.readable(tokens))
        mass = (weights * (copied == tokens.unsqueeze(1))).sum(dim=1)
        copies = _safe_log(mass) + copy
        least = math.log(torch.finfo(copies.dtype).tiny)  # of an extended token that the source does not have
        mixed = torch.logaddexp(generated + generate, copies)
        return torch.where(tokens < self.vocabulary, mixed, copies.masked_fill(mass == 0, least)), mean

    def step(
        self,
        logits: Float[Tensor, "N V"],
        features: Float[Tensor, "N F"],
        weights: Weights,
        copied: Int[Tensor, "B S"],
    ) -> Float[Tensor, "N W"]:
        """Return the log-probabilities of one step of N = B · K hypotheses."""
        dense = copying_head(weights).dense().flatten(0, -2)
        rows = copied.repeat_interleave(dense.shape[0] // max(1, copied.shape[0]), dim=0)
        return self.mix(logits.unsqueeze(1), features.unsqueeze(1), dense.unsqueeze(1), rows).squeeze(1)

    def _gates(self, features: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the logarithms of p_gen and of 1 − p_gen, and p_gen; a row that attends to nothing generates."""
        gate = self.gate(features).squeeze(-1)
        gate = gate.to(torch.promote_types(gate.dtype, torch.float32))
        reads = weights.detach().sum(dim=-1) > 0
        generate = F.logsigmoid(gate).masked_fill(~reads, 0.0)
        return generate, F.logsigmoid(-gate), generate.exp()


def copying_head(weights: Weights) -> Weights:
    """Return the weights that are copied by, ``(B, T, S)``: all of them, or those of the first of several heads."""
    return weights.heads(0) if len(weights.shape) == 4 else weights


class CopyingDecoder(nn.Module):
    """The base of decoders that can copy; without a `CopyHead` they generate all tokens."""

    output: nn.Linear
    copying: CopyHead | None

    def _readable(self, tokens: Tensor) -> Tensor:
        return tokens if self.copying is None else self.copying.readable(tokens)

    def _copied(self, owner: str, encoded: EncoderOutput | None) -> Tensor | None:
        """Return the extended ids of a source, None without copying; raise if they are missing or do not fit it."""
        if self.copying is None or encoded is None:
            return None
        if encoded.copied is None:
            raise ConfigError(
                f"{owner}: the decoder copies, but the source has no target ids, expected one per position. Give the "
                "model a CopySource, or the decoder EncoderOutput(…, copied=ids)."
            )
        check_ids(owner, "encoded.copied", encoded.copied, *encoded.values.shape[:2])
        return encoded.copied

    def _predict(
        self,
        features: Tensor,
        attentions: dict[str, Weights],
        targets: Targets | None,
        weights: Weights | None,
        copied: Tensor | None,
    ) -> TokenLogits | TokenLoss:
        """End a forward pass; ``weights`` are those that are copied by."""
        if self.copying is None or weights is None or copied is None:
            return logits_or_loss(features, self.output, attentions, targets)
        return self.copying.predict(features, self.output, attentions, targets, weights, copied)

    def _mixed(self, logits: Tensor, features: Tensor, weights: Weights | None, copied: Tensor | None) -> Tensor:
        """End a step."""
        if self.copying is None or weights is None or copied is None:
            return logits
        return self.copying.step(logits, features, weights, copied)


def _safe_log(mass: Tensor) -> Tensor:
    """Return log(mass), −∞ with a gradient of 0 where there is none."""
    mass = mass.to(torch.promote_types(mass.dtype, torch.float32))
    return mass.clamp_min(torch.finfo(mass.dtype).tiny).log().masked_fill(mass == 0, -torch.inf)
