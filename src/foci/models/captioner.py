"""Show, attend and tell: a caption, word by word, each with a look at the regions of the image.

    a_i = [f_i; place_i]   or, smaller,   a_i = tanh(W_a [f_i; place_i] + b_a)         f_i region i of the image
    h_0 = tanh(W_h ā + b_h),   c_0 = W_c ā + b_c,   ā = mean_i a_i
    α_t = softmax_i(e(h_{t−1}, a_i)),   β_t = σ(w_β h_{t−1} + b_β)
    z_t = β_t Σ_i α_ti a_i              soft;       z_t = β_t a_{s_t},  s_t ~ α_t              hard
    h_t, c_t = LSTM([E y_{t−1}; z_t], h_{t−1}, c_{t−1})
    p(y_t) = softmax(L_o (E y_{t−1} + L_h h_t + L_z z_t))

    loss = −Σ_t log p(y_t) + λ Σ_i (1 − Σ_t α_ti)²                                                soft
    loss = −Σ_t log p(y_t) − λ_r (log p(y | s) − b) Σ_t log α_{t,s_t} − λ_e Σ_t H(α_t)            hard
    b ← 0.9 b + 0.1 mean(log p(y | s)) after each batch

Paper: Show, Attend and Tell: Neural Image Caption Generation with Visual Attention (Xu et al., 2015), eqs. 1-9, 11-14,
    arXiv:1502.03044
Names: a = encoded.values, W_a and b_a = encoder.project, W_h and W_c = decoder.bridge, e = decoder.attention.score,
    β = decoder.gate, E = decoder.embedding, L_h and L_z = decoder.readout.layer, L_o = decoder.output, λ =
    double_weight, λ_r = reward_weight, λ_e = entropy_weight, b = baseline, α = attentions["decoder.cross"]
Complexity: that of the encoder, plus O(T · (S · A + D²)) for S regions, a score of size A and T words
Differs: a region has its place beside its features, since a small network does not tell places apart, and one layer
    can make annotations smaller than the features; the initial states come from one layer each. Gradients pass to log α
    only for the captions that sampled: a caption that reads the weighted sum (half of them, as in the paper) learns
    through it. In ``eval()`` hard attention reads the likeliest region, which the paper leaves open. Straight-through
    Gumbel-softmax (Jang, 2017) is an alternative to REINFORCE; any score, normalizer and focus of the catalog can be
    used; a Transformer can take the place of the LSTM.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from foci.checks import check_ids, check_shape
from foci.errors import ConfigError
from foci.functional.sample import reinforce
from foci.layers.dropout import Dropout
from foci.layers.interfaces import Decoder, EncoderOutput
from foci.layers.token_loss import Targets, TokenLogits, TokenLoss
from foci.mechanisms.sampled import probabilities_of
from foci.models.build import build_decoder
from foci.models.encoder_decoder import EncoderDecoder
from foci.models.encoders.image_grid import Image, ImageGridEncoder, places
from foci.models.options.images import AnnotationOptions, CaptionerOptions, GridAnnotationOptions
from foci.weights import Weights

SMALL = "small"
"""The encoder that is trained with the rest; all others give features that were computed before."""


class CaptionedImages(NamedTuple):
    """Images, and for each caption the number of its image.

    Attributes:
        images: ``(I, 3, H, W)``, bytes; or features that were computed before, ``(I, h, w, D)``.
        image_of: one number per caption; None where caption b is of image b.
    """

    images: Tensor
    image_of: Int[Tensor, " B"] | None = None


class AnnotationEncoder(nn.Module):
    """Makes annotations of the regions of an image: their features and places.

    Args:
        grid_encoder: the network that makes the regions of an image; None where they were computed before.
        region_dim: size of a region.
        annotation_dim: map features and places to this size, by one layer. Default: as they are.
        dropout: on the regions, in training.

    Example:
        >>> import torch
        >>> encoder = AnnotationEncoder(None, 5, 7)
        >>> encoder(torch.zeros(2, 4, 3, 5)).values.shape, encoder.grid((2, 4, 3, 5))
        (torch.Size([2, 12, 7]), (4, 3))
    """

    def __init__(
        self,
        grid_encoder: ImageGridEncoder | None,
        region_dim: int,
        annotation_dim: int | None = None,
        *,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.grid_encoder = grid_encoder
        self.region_dim = region_dim
        self.output_dim = region_dim + 2 if annotation_dim is None else annotation_dim
        self.dropout = Dropout(dropout)
        self.project = None if annotation_dim is None else nn.Linear(region_dim + 2, annotation_dim)

    def grid(self, shape: torch.Size | tuple[int, ...]) -> tuple[int, int]:
        """Return how many regions down and across images, or features, of a shape have."""
        return (shape[1], shape[2]) if self.grid_encoder is None else self.grid_encoder.grid(shape[2], shape[3])

    def forward(
        self, images: Image | Float[Tensor, "B h w D"], valid: Bool[Tensor, "B S"] | None = None
    ) -> EncoderOutput:
        """Return the annotations of a batch of images, or of features."""
        if self.grid_encoder is not None:
            encoded = self.grid_encoder(images, valid)
        else:
            owner = type(self).__name__
            fix = "Features are expected here."
            check_shape(owner, "images", images, "batch", "row", "column", self.region_dim, fix=fix)
            half = images.dtype in (torch.float16, torch.bfloat16)
            features = (images.float() if half else images).flatten(1, 2)
            exists = torch.ones(features.shape[:2], dtype=torch.bool, device=features.device)
            encoded = EncoderOutput(features, exists if valid is None else valid)
        middles = places(self.grid(images.shape), encoded.values)
        regions = torch.cat([self.dropout(encoded.values), middles], dim=-1)
        annotations = regions if self.project is None else torch.tanh(self.project(regions))
        return EncoderOutput(annotations, encoded.valid, attentions=encoded.attentions)


class Captioner(EncoderDecoder):
    """An annotation encoder with a decoder that attends to the annotations, and what its loss has beside the words.

    Args:
        encoder: makes the annotations.
        decoder: reads them.
        double_weight: λ of the doubly stochastic term; the captions' weights of all words together shall cover every
            region equally.
        reward_weight, entropy_weight: λ_r and λ_e of hard attention.
    """

    encoder: AnnotationEncoder
    baseline: Tensor

    def __init__(
        self,
        encoder: AnnotationEncoder,
        decoder: Decoder,
        *,
        double_weight: float = 0.0,
        reward_weight: float = 0.0,
        entropy_weight: float = 0.0,
    ) -> None:
        super().__init__(encoder, decoder)
        self.double_weight, self.reward_weight, self.entropy_weight = double_weight, reward_weight, entropy_weight
        self.register_buffer("baseline", torch.zeros(()))

    def grid(self, shape: torch.Size | tuple[int, ...]) -> tuple[int, int]:
        """Return how many regions down and across images ``(I, 3, H, W)``, or features ``(I, h, w, D)``, have."""
        return self.encoder.grid(shape)

    def forward(
        self, source: Any, source_valid: Any, target: Int[Tensor, "B T"], targets: Targets | None = None
    ) -> TokenLogits | TokenLoss:
        """Predict by teacher forcing; a loss has the further terms of the paper in ``terms``.

        Args:
            source: `CaptionedImages`, or images alone.
            source_valid: which regions exist, ``(I, S)``; all of them if None.
            target: the words so far; they start with BOS.
            targets: the words to predict, for the loss instead of the logits.
        """
        check_ids(type(self).__name__, "target", target, "caption", "word")
        predicted = super().forward(source, source_valid, target, targets)
        if isinstance(predicted, TokenLogits) or targets is None:
            return predicted
        return predicted._replace(terms=self._terms(predicted, targets.tokens != targets.padding))

    def _encode(self, source: Any, valid: Any) -> EncoderOutput:
        images, image_of = source if isinstance(source, CaptionedImages) else (source, None)
        encoded: EncoderOutput = self.encoder(images, valid)
        if image_of is None:
            return encoded
        return encoded._replace(values=encoded.values[image_of], valid=encoded.valid[image_of], attentions=None)

    def _terms(self, predicted: TokenLoss, exists: Bool[Tensor, "B T"]) -> dict[str, Tensor]:
        handle = _crossing(predicted.attentions)
        terms = {}
        if self.double_weight:
            weights = probabilities_of(handle)
            weights = weights.mean(dim=1) if weights.dim() == 4 else weights
            covered = (weights * exists.unsqueeze(-1)).sum(dim=1)
            terms["double"] = self.double_weight * (1 - covered).square().sum()
        if self.reward_weight and handle.log_prob is not None and self.training:
            rows = len(exists)
            surrogate = reinforce(handle.log_prob * exists, predicted.log_probs.sum(dim=1), self.baseline, decay=0.9)
            entropy = (handle.entropy() * exists).sum()
            terms["reinforce"] = self.reward_weight * rows * surrogate.loss
            terms["entropy"] = -self.entropy_weight * entropy
            self.baseline.copy_(surrogate.baseline)
        return terms


def build_captioner(vocabulary: int, feature_dim: int | None, options: CaptionerOptions) -> Captioner:
    """Return a new captioner.

    Call it as ``model(CaptionedImages(images, image_of), None, target, targets)``; with images ``(I, 3, H, W)``, bytes,
    or features ``(I, h, w, D)``.

    Args:
        vocabulary: number of words.
        feature_dim: size of the features of a frozen network; None for the encoder that is trained with the rest.
        options: encoder, decoder, attention, and weights of the further terms of the loss.

    Example:
        >>> import torch
        >>> from foci.models.options.decoders import RecurrentDecoderOptions
        >>> decoder = RecurrentDecoderOptions(variant="xu", embedding_dim=5, hidden_dim=6)
        >>> model = build_captioner(11, None, CaptionerOptions(decoder=decoder))
        >>> images, words = torch.zeros(2, 3, 16, 12, dtype=torch.uint8), torch.ones(2, 5, dtype=torch.long)
        >>> predicted = model(images, None, words)
        >>> predicted.logits.shape, predicted.attentions["decoder.cross"].shape, model.grid(images.shape)
        (torch.Size([2, 5, 11]), torch.Size([2, 5, 12]), (4, 3))
    """
    attention, hard = options.attention, options.attention.normalize == "sample"
    if hard and attention.expectation_share is None and attention.num_heads is None:
        attention = replace(attention, expectation_share=0.5)
    encoder = _annotations(options.encoder, feature_dim)
    decoder = build_decoder(vocabulary, encoder.output_dim, options.decoder, attention)
    return Captioner(
        encoder,
        decoder,
        double_weight=options.double_weight,
        reward_weight=options.reward_weight if hard else 0.0,
        entropy_weight=options.entropy_weight,
    )


def _annotations(options: AnnotationOptions, feature_dim: int | None) -> AnnotationEncoder:
    if isinstance(options, GridAnnotationOptions):
        network, size = ImageGridEncoder(options), options.hidden_dim
        return AnnotationEncoder(network, size, options.annotation_dim, dropout=options.dropout)
    if feature_dim is None:
        raise ConfigError(
            f"build_captioner: the encoder is the frozen network {options.network!r} and feature_dim is None, expected "
            "the size of its features."
        )
    return AnnotationEncoder(None, feature_dim, options.annotation_dim, dropout=options.dropout)


def _crossing(attentions: dict[str, Weights]) -> Weights:
    """The attention to the regions, of the last layer that has one."""
    return [handle for name, handle in attentions.items() if name.endswith("cross")][-1]
