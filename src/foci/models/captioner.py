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

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from foci.checks import check_ids, check_shape
from foci.errors import ConfigError, unknown_name
from foci.functional.sample import reinforce
from foci.layers.dropout import Dropout
from foci.layers.interfaces import Decoder, EncoderOutput
from foci.layers.token_loss import Targets, TokenLogits, TokenLoss
from foci.layers.transformer import Block
from foci.mechanisms.sampled import probabilities_of
from foci.models.decoders.recurrent import RecurrentDecoder
from foci.models.decoders.transformer import TransformerDecoder
from foci.models.encoder_decoder import EncoderDecoder
from foci.models.encoders.image_grid import NO_ATTENTION, Image, ImageGridEncoder, places
from foci.weights import Weights
from foci.weights.reductions import entropy_of_weights

ATTENTIONS = ("soft", "hard", "gumbel")
SMALL = "small"
"""The encoder that is trained with the rest; all others give features that were computed before."""

PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {"embedding_dim": 32, "embedding_range": 1.7, "hidden_dim": 64, "region_dim": 32, "num_stages": 2,
             "stride": 2, "sharpening": 5.0},
    "base": {"embedding_dim": 128, "hidden_dim": 256, "region_dim": 64, "num_stages": 2, "stride": 2},
    "xu": {"embedding_dim": 256, "hidden_dim": 512, "annotation_dim": 512, "attention_dim": 256, "region_dim": 128,
           "num_stages": 4, "dropout": 0.5, "double_weight": 1.0},
}  # fmt: skip

TRANSFORMER_PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {"model_dim": 64, "num_heads": 4, "hidden_dim": 128, "num_layers": 2, "norm": "pre", "region_dim": 32,
             "num_stages": 2, "stride": 2, "dropout": 0.0},
    "base": {"model_dim": 256, "num_heads": 8, "hidden_dim": 1024, "num_layers": 3, "norm": "pre", "region_dim": 64,
             "num_stages": 2, "stride": 2},
}  # fmt: skip


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
        annotation_dim: map features and places to this size, by one layer; as they are unless given.
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
            entropy = (entropy_of_weights(probabilities_of(handle)).squeeze(-1) * exists).sum()
            terms["reinforce"] = self.reward_weight * rows * surrogate.loss
            terms["entropy"] = -self.entropy_weight * entropy
            self.baseline.copy_(surrogate.baseline)
        return terms


class RecurrentCaptioner(Captioner):
    """The captioner of the paper: an LSTM with attention to the regions of an image.

    Call it as ``model(CaptionedImages(images, image_of), None, target, targets)``; with images ``(I, 3, H, W)``, bytes,
    or features ``(I, h, w, D)``.

    Args:
        vocabulary: number of words.
        feature_dim: size of the features that were computed before; not used by the encoder "small".
        encoder: "small", a residual network that is trained with the rest; or the name of the network whose features
            the model gets.
        attention: "soft"; "hard", sampled regions trained by REINFORCE; or "gumbel", sampled regions with straight-
            through gradients.
        score, normalize, focus, radius, reach, sharpening: of the attention, as in `foci.Attention`; hard and gumbel
            have their own normalizers.
        num_heads: use multi-head attention, as in `foci.models.decoders.recurrent.RecurrentDecoder`.
        embedding_dim: size of the word embeddings.
        embedding_range: the embeddings start uniform within ± this.
        hidden_dim: size of the LSTM's state.
        annotation_dim: size of the annotations; features and places as they are unless given.
        attention_dim: size in which the state and the annotations are compared; the state's unless given.
        cell: "lstm" or "gru".
        region_dim: channels of the last stage of the small network.
        num_stages, depth, stride, reduction, kernel_size: of the small network, as in `ImageGridEncoder`.
        block_attention: attention in the blocks of the small network: "none", "squeeze_excitation",
            "efficient_channel", "cbam" or "spatial".
        dropout: on regions and word embeddings, and before the output layer.
        double_weight: λ of the doubly stochastic term, 1 in the paper.
        reward_weight: λ_r of hard attention.
        entropy_weight: λ_e of hard attention.
        expectation_share: share of the captions that read the weighted sum in training with hard attention.

    Example:
        >>> import torch
        >>> model = RecurrentCaptioner(11, embedding_dim=5, hidden_dim=6, annotation_dim=7, region_dim=8)
        >>> images, words = torch.zeros(2, 3, 16, 12, dtype=torch.uint8), torch.ones(2, 5, dtype=torch.long)
        >>> predicted = model(images, None, words)
        >>> predicted.logits.shape, predicted.attentions["decoder.cross"].shape, model.grid(images.shape)
        (torch.Size([2, 5, 11]), torch.Size([2, 5, 12]), (4, 3))
    """

    decoder: RecurrentDecoder

    def __init__(
        self,
        vocabulary: int,
        feature_dim: int | None = None,
        *,
        encoder: str = SMALL,
        attention: str = "soft",
        score: str = "additive",
        normalize: str = "softmax",
        focus: str = "global",
        radius: int | None = None,
        reach: tuple[int, int] | None = None,
        sharpening: float = 1.0,
        num_heads: int | None = None,
        embedding_dim: int = 128,
        embedding_range: float = 0.1,
        hidden_dim: int = 256,
        annotation_dim: int | None = None,
        attention_dim: int | None = None,
        cell: str = "lstm",
        region_dim: int = 64,
        num_stages: int = 3,
        depth: int = 1,
        stride: int = 1,
        block_attention: str = NO_ATTENTION,
        reduction: int = 4,
        kernel_size: int = 7,
        dropout: float = 0.0,
        double_weight: float = 0.0,
        reward_weight: float = 0.1,
        entropy_weight: float = 0.002,
        expectation_share: float = 0.5,
    ) -> None:
        if attention not in ATTENTIONS:
            raise unknown_name("attention of a captioner", attention, ATTENTIONS)
        if attention != "soft" and normalize != "softmax":
            raise ConfigError(
                f"RecurrentCaptioner: attention is {attention!r} and normalize is {normalize!r}, expected the latter "
                "with soft attention only. Leave it out."
            )
        annotations = _annotations(
            encoder, feature_dim, annotation_dim, dropout,
            region_dim=region_dim, num_stages=num_stages, depth=depth, stride=stride, attention=block_attention,
            reduction=reduction, kernel_size=kernel_size,
        )  # fmt: skip
        decoder = RecurrentDecoder(
            vocabulary,
            source_dim=annotations.output_dim,
            embedding_dim=embedding_dim,
            embedding_range=embedding_range,
            hidden_dim=hidden_dim,
            cell=cell,
            kind="xu",
            score=score,
            normalize={"soft": normalize, "hard": "sample", "gumbel": "gumbel"}[attention],
            focus=focus,
            attention_dim=attention_dim,
            sharpening=sharpening,
            radius=radius,
            reach=reach,
            num_heads=num_heads,
            expectation_share=expectation_share if attention == "hard" else None,
            dropout=dropout,
        )
        super().__init__(
            annotations,
            decoder,
            double_weight=double_weight,
            reward_weight=reward_weight if attention == "hard" else 0.0,
            entropy_weight=entropy_weight,
        )


class TransformerCaptioner(Captioner):
    """The same encoder with a Transformer's decoder, whose every layer attends to the regions.

    Args:
        vocabulary: number of words.
        feature_dim: size of the features that were computed before; not used by the encoder "small".
        encoder: as in `RecurrentCaptioner`.
        model_dim: size of every position.
        annotation_dim: size of the annotations; features and places as they are unless given.
        num_heads: heads of every attention.
        hidden_dim: inner size of the feed-forward networks.
        num_layers: number of layers.
        norm: "post" (2017) or "pre".
        score, normalize: of every attention, as in `foci.models.transformer.Transformer`.
        positions: "sinusoidal", "learned", "rotary" or "alibi".
        max_length: the number of learned positions.
        region_dim: channels of the last stage of the small network.
        num_stages, depth, stride, block_attention, reduction, kernel_size: of the small network, as in
            `RecurrentCaptioner`.
        dropout: on regions and embeddings, and of every sublayer's output.
        double_weight: λ of the doubly stochastic term, for the mean over the heads of the last layer.
    """

    decoder: TransformerDecoder

    def __init__(
        self,
        vocabulary: int,
        feature_dim: int | None = None,
        *,
        encoder: str = SMALL,
        model_dim: int = 256,
        annotation_dim: int | None = None,
        num_heads: int = 8,
        hidden_dim: int = 1024,
        num_layers: int = 3,
        norm: str = "pre",
        score: str = "scaled_dot",
        normalize: str = "softmax",
        positions: str = "sinusoidal",
        max_length: int | None = None,
        region_dim: int = 64,
        num_stages: int = 3,
        depth: int = 1,
        stride: int = 1,
        block_attention: str = NO_ATTENTION,
        reduction: int = 4,
        kernel_size: int = 7,
        dropout: float = 0.1,
        double_weight: float = 0.0,
    ) -> None:
        annotations = _annotations(
            encoder, feature_dim, annotation_dim, dropout,
            region_dim=region_dim, num_stages=num_stages, depth=depth, stride=stride, attention=block_attention,
            reduction=reduction, kernel_size=kernel_size,
        )  # fmt: skip
        block = Block(
            model_dim=model_dim,
            num_heads=num_heads,
            hidden_dim=hidden_dim,
            norm=norm,
            dropout=dropout,
            score=score,
            normalize=normalize,
        )
        decoder = TransformerDecoder(
            vocabulary,
            block,
            source_dim=annotations.output_dim,
            num_layers=num_layers,
            positions=positions,
            max_length=max_length,
        )
        super().__init__(annotations, decoder, double_weight=double_weight)


def _annotations(
    encoder: str, feature_dim: int | None, size: int | None, dropout: float, *, region_dim: int, **options: Any
) -> AnnotationEncoder:
    if encoder == SMALL:
        return AnnotationEncoder(ImageGridEncoder(region_dim, **options), region_dim, size, dropout=dropout)
    if feature_dim is None:
        raise ConfigError(f"Captioner: encoder is {encoder!r} and feature_dim is None, expected the features' size.")
    return AnnotationEncoder(None, feature_dim, size, dropout=dropout)


def _crossing(attentions: dict[str, Weights]) -> Weights:
    """The attention to the regions, of the last layer that has one."""
    return [handle for name, handle in attentions.items() if name.endswith("cross")][-1]
