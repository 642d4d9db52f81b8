"""Speech recognition: a speech encoder, a recurrent decoder that attends to it, and a CTC output beside it.

    h = encoder(features),   p(y_t | y_<t, features) as in `foci.models.decoders.recurrent`
    p_ctc(y | features) = Σ over the paths of y of Π_s softmax(W h_s)

Which cells the decoder reads follows from what it has said (content), from where it read before (location), or from
both. CTC trains the encoder to say when each token is spoken, without which attention alone often finds no alignment.

Paper: Attention-Based Models for Speech Recognition (Chorowski et al., 2015), section 2; Listen, Attend and Spell (Chan
    et al., 2016); Connectionist Temporal Classification (Graves et al., 2006); Joint CTC-Attention based End-to-End
    Speech Recognition using Multi-task Learning (Kim, Hori, Watanabe, 2017), eq. 14
Names: x = features, h = encoded.values, W = ctc_output
Complexity: that of the encoder, plus T reads of S cells, plus O(S · U) for CTC
Differs: encoder and decoder are options; the blank of CTC is the padding token, which is never predicted.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from foci import masks
from foci.checks import check_shape
from foci.errors import ConfigError
from foci.functional.ctc import BLANK
from foci.layers.dropout import Dropout
from foci.layers.interfaces import DecoderStep, EncoderOutput
from foci.layers.token_loss import Targets, TokenLogits, TokenLoss
from foci.mechanisms.scores import LocationAware, Score
from foci.models.decoders.recurrent import RecurrentDecoder
from foci.models.encoders.speech import speech_encoder

PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {
        "encoder": "dilated",
        "hidden_dim": 64,
        "embedding_dim": 32,
        "num_layers": 4,
        "attention_dim": 48,
        "width": 31,
        "dropout": 0.1,
    },
    "small": {"hidden_dim": 192, "embedding_dim": 64, "num_layers": 2, "attention_dim": 128, "dropout": 0.2},
    "base": {"hidden_dim": 320, "embedding_dim": 96, "num_layers": 3, "attention_dim": 192, "dropout": 0.3},
    "chorowski": {
        "hidden_dim": 256,
        "encoder_dim": 512,
        "num_layers": 3,
        "attention_dim": 512,
        "width": 201,
        "reduction": 1,
        "ctc": False,
    },
    "las": {
        "encoder": "pyramid",
        "cell": "lstm",
        "hidden_dim": 512,
        "encoder_dim": 512,
        "num_layers": 4,
        "reduction": 8,
        "score": "general",
        "ctc": False,
    },
}


class RecognizerLoss(NamedTuple):
    """The losses of a batch, summed over its tokens.

    Attributes:
        attention: the decoder's; None without one.
        ctc: CTC's; None without it. An utterance that is too short for its tokens counts 0.
    """

    attention: TokenLoss | None
    ctc: Float[Tensor, ""] | None


class Recognizer(nn.Module):
    """A speech encoder with a recurrent decoder, CTC, or both.

    Args:
        input_dim: features per frame.
        vocabulary: number of tokens, those of BOS, EOS and padding included.
        encoder: "conv" (strided convolutions and a recurrent network), "dilated" (convolutions alone), "pyramid" or
            "transformer".
        decoder: "bahdanau" (attention before the recurrent step), "luong" (after it), or "none" for CTC alone.
        ctc: whether there is a CTC output.
        hidden_dim: size of the decoder's state.
        encoder_dim: size of the cells, both directions together; the decoder's unless given.
        embedding_dim: size of the embeddings.
        num_layers: layers of the encoder after its convolutions.
        reduction: frames per cell, a power of 2.
        cell: "lstm" or "gru".
        encoder_heads: heads of self-attention with encoder="transformer".
        score: "location_aware" (Chorowski), or any of `foci.Attention`: "additive", "general", "scaled_dot", "dot", …
        content: whether location_aware also compares content; without it, it reads by location alone.
        num_filters: filters over the previous weights, with location_aware.
        width: cells that a filter covers, odd.
        normalize, focus, sharpening, reach: as in `foci.Attention`: normalize="sigmoid" is Chorowski's smoothing,
            focus="median_window" with reach his windowing.
        start_at_first: begin to read at the first cell, with location_aware or median_window: for recordings that are
            longer than those of the training. Otherwise the first token may be found anywhere.
        attention_dim: hidden size of the score.
        num_heads: use multi-head attention, with score "scaled_dot", "dot" or "cosine".
        dropout: on features between layers, embeddings, and before the output layers.

    Example:
        >>> import torch
        >>> model = Recognizer(5, 11, hidden_dim=6, embedding_dim=3, width=3)
        >>> tokens = torch.tensor([[1, 7, 8, 2]])
        >>> loss = model(torch.zeros(1, 13, 5), torch.tensor([13]), tokens)
        >>> loss.attention.loss.shape, loss.ctc.shape
        (torch.Size([]), torch.Size([]))
    """

    steps: Tensor
    """How many steps it was trained for: set by the training, which counts them, and kept with the weights."""

    def __init__(
        self,
        input_dim: int,
        vocabulary: int,
        *,
        encoder: str = "conv",
        decoder: str = "bahdanau",
        ctc: bool = True,
        hidden_dim: int = 192,
        encoder_dim: int | None = None,
        embedding_dim: int = 64,
        num_layers: int = 2,
        reduction: int = 4,
        cell: str = "gru",
        encoder_heads: int = 4,
        score: str = "location_aware",
        content: bool = True,
        num_filters: int = 10,
        width: int = 51,
        normalize: str = "softmax",
        focus: str = "global",
        sharpening: float = 1.0,
        reach: tuple[int, int] | None = None,
        start_at_first: bool = False,
        attention_dim: int | None = None,
        num_heads: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if decoder not in ("bahdanau", "luong", "none"):
            raise ConfigError(f"Recognizer: decoder is {decoder!r}, expected 'bahdanau', 'luong' or 'none'.")
        if decoder == "none" and not ctc:
            raise ConfigError("Recognizer: there is neither a decoder nor CTC, expected at least one of them.")
        located = score == "location_aware" and num_heads is None
        if not content and not located:
            raise ConfigError(f"Recognizer: content is False with score {score!r}, expected 'location_aware'.")
        encoder_dim = hidden_dim if encoder_dim is None else encoder_dim
        self.encoder = speech_encoder(
            encoder,
            input_dim,
            output_dim=encoder_dim,
            num_layers=num_layers,
            reduction=reduction,
            cell=cell,
            num_heads=encoder_heads,
            dropout=dropout,
        )
        self.content = content
        self.vocabulary = vocabulary
        self.dropout = Dropout(dropout)
        self.ctc_output = nn.Linear(encoder_dim, vocabulary) if ctc else None
        self.decoder: RecurrentDecoder | None = None
        if decoder != "none":
            scored: str | Score = score
            if located:
                scored = LocationAware(hidden_dim, encoder_dim, attention_dim, num_filters=num_filters, width=width)
            self.decoder = RecurrentDecoder(
                vocabulary,
                source_dim=encoder_dim,
                embedding_dim=embedding_dim,
                hidden_dim=hidden_dim,
                cell=cell,
                kind=decoder,
                score=scored,
                normalize=normalize,
                focus=focus,
                attention_dim=attention_dim,
                sharpening=sharpening,
                reach=reach,
                start_at_first=start_at_first,
                num_heads=num_heads,
                dropout=dropout,
            )
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    @property
    def reduction(self) -> int:
        """Frames per cell."""
        return self.encoder.reduction

    @property
    def max_length(self) -> int | None:
        """None: neither a recurrence nor CTC has a longest target of its own."""
        return None

    def forward(
        self,
        features: Float[Tensor, "B T F"],
        lengths: Int[Tensor, " B"],
        target: Int[Tensor, "B U"],
        label_smoothing: float = 0.0,
    ) -> RecognizerLoss:
        """Return the losses of a batch.

        Args:
            features: padded.
            lengths: frames of each utterance.
            target: BOS … EOS, padded with 0.
            label_smoothing: of the decoder's loss.
        """
        encoded = self.encode(features, lengths)
        spoken = None
        if self.decoder is not None:
            wanted = Targets(target[:, 1:], label_smoothing, BLANK)
            spoken = cast("TokenLoss", self.decoder(encoded, target[:, :-1], wanted))
        return RecognizerLoss(spoken, None if self.ctc_output is None else self._ctc_loss(encoded, target))

    def encode(self, features: Float[Tensor, "B T F"], lengths: Int[Tensor, " B"]) -> EncoderOutput:
        """Return the cells that a decoder reads."""
        check_shape("Recognizer", "features", features, "batch", "frame", "feature")
        encoded: EncoderOutput = self.encoder(features, masks.lengths(lengths, features.shape[1]))
        return encoded if self.content else encoded._replace(keys=torch.zeros_like(encoded.values))

    def ctc_log_probs(self, encoded: EncoderOutput) -> Float[Tensor, "B S V"]:
        """Return the log-probability of each token, and of blank (0), in each cell."""
        if self.ctc_output is None:
            raise ConfigError("Recognizer: it has no CTC output. Build it with ctc=True.")
        return torch.log_softmax(self.ctc_output(self.dropout(encoded.values)).float(), dim=-1)

    def teach(self, encoded: EncoderOutput, target: Int[Tensor, "B U"]) -> TokenLogits:
        """Return the decoder's logits and attention by teacher forcing; the target starts with BOS."""
        if self.decoder is None:
            raise ConfigError("Recognizer: it has no decoder. Build it with decoder='bahdanau'.")
        return cast("TokenLogits", self.decoder(encoded, target))

    def step(self, token: Int[Tensor, " N"], memory: Any, state: Any) -> DecoderStep:
        """Return the scores of what follows ``token`` in each of N hypotheses."""
        if self.decoder is None:
            raise ConfigError("Recognizer: it has no decoder. Build it with decoder='bahdanau'.")
        return self.decoder.step(token, memory, state)

    def _ctc_loss(self, encoded: EncoderOutput, target: Tensor) -> Tensor:
        logs = self.ctc_log_probs(encoded).transpose(0, 1)
        said = (target != BLANK).sum(dim=1) - 2  # without BOS and EOS
        heard = encoded.valid.sum(dim=1)
        loss: Tensor = F.ctc_loss(
            logs, target[:, 1:], heard, said.clamp_min(0), blank=BLANK, reduction="sum", zero_infinity=True
        )
        return loss
