"""Speech recognition: a speech encoder, a recurrent decoder that attends to it, and a CTC output beside it.

    h = encoder(features),   p(y_t | y_<t, features) as in `foci.models.decoders.recurrent`
    p_ctc(y | features) = Σ over the paths of y of Π_s softmax(W h_s)

Which positions the decoder reads follows from what it has said (content), from where it read before (location), or from
both. CTC trains the encoder to say when each token is spoken, without which attention alone often finds no alignment.

Paper: Attention-Based Models for Speech Recognition (Chorowski et al., 2015), section 2; Listen, Attend and Spell (Chan
    et al., 2016); Connectionist Temporal Classification (Graves et al., 2006); Joint CTC-Attention based End-to-End
    Speech Recognition using Multi-task Learning (Kim, Hori, Watanabe, 2017), eq. 14
Names: x = features, h = encoded.values, W = ctc_output
Complexity: that of the encoder, plus T reads of S positions, plus O(S · U) for CTC
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
from foci.models.attention import build_attention
from foci.models.decoders.recurrent import RecurrentDecoder, recurrent_decoder
from foci.models.encoders.speech import build_speech_encoder
from foci.models.options.decoders import RecurrentDecoderOptions
from foci.models.options.speech import RecognizerOptions


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
        options: encoder, decoder, attention, and whether there is a CTC output.

    Example:
        >>> import torch
        >>> from foci.models.options.decoders import RecurrentDecoderOptions
        >>> from foci.models.options.speech import ConvolutionalSpeechEncoderOptions
        >>> encoder = ConvolutionalSpeechEncoderOptions(hidden_dim=6)
        >>> model = Recognizer(5, 11, RecognizerOptions(encoder=encoder, decoder=RecurrentDecoderOptions(hidden_dim=6)))
        >>> tokens = torch.tensor([[1, 7, 8, 2]])
        >>> loss = model(torch.zeros(1, 13, 5), torch.tensor([13]), tokens)
        >>> loss.attention.loss.shape, loss.ctc.shape
        (torch.Size([]), torch.Size([]))
    """

    steps: Tensor
    """How many steps it was trained for: set by the training, which counts them, and kept with the weights."""

    def __init__(self, input_dim: int, vocabulary: int, options: RecognizerOptions) -> None:
        super().__init__()
        self.encoder = build_speech_encoder(input_dim, options.encoder)
        size = self.encoder.output_dim
        self.vocabulary = vocabulary
        self.dropout = Dropout(options.encoder.dropout)
        self.ctc_output = nn.Linear(size, vocabulary) if options.ctc else None
        self.decoder: RecurrentDecoder | None = None
        if isinstance(options.decoder, RecurrentDecoderOptions):
            attention, module = options.attention, None
            if attention.score == "location_aware":  # its weights are drawn before the decoder's
                module = build_attention(options.decoder.hidden_dim, size, attention)
            self.decoder = recurrent_decoder(vocabulary, size, options.decoder, attention, module)
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    @property
    def subsampling_factor(self) -> int:
        """Frames per encoded position."""
        return self.encoder.subsampling_factor

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
        """Return the positions that a decoder reads."""
        check_shape("Recognizer", "features", features, "batch", "frame", "feature")
        encoded: EncoderOutput = self.encoder(features, masks.lengths(lengths, features.shape[1]))
        return encoded

    def ctc_log_probs(self, encoded: EncoderOutput) -> Float[Tensor, "B S V"]:
        """Return the log-probability of each token, and of blank (0), at each position."""
        if self.ctc_output is None:
            raise ConfigError("Recognizer: it has no CTC output. Build it with ctc=True.")
        return torch.log_softmax(self.ctc_output(self.dropout(encoded.values)).float(), dim=-1)

    def teach(self, encoded: EncoderOutput, target: Int[Tensor, "B U"]) -> TokenLogits:
        """Return the decoder's logits and attention by teacher forcing; the target starts with BOS."""
        if self.decoder is None:
            raise ConfigError("Recognizer: it has no decoder. Build it with a recurrent decoder.")
        return cast("TokenLogits", self.decoder(encoded, target))

    def step(self, token: Int[Tensor, " N"], memory: Any, state: Any) -> DecoderStep:
        """Return the scores of what follows ``token`` in each of N hypotheses."""
        if self.decoder is None:
            raise ConfigError("Recognizer: it has no decoder. Build it with a recurrent decoder.")
        return self.decoder.step(token, memory, state)

    def _ctc_loss(self, encoded: EncoderOutput, target: Tensor) -> Tensor:
        logs = self.ctc_log_probs(encoded).transpose(0, 1)
        said = (target != BLANK).sum(dim=1) - 2  # without BOS and EOS
        heard = encoded.valid.sum(dim=1)
        loss: Tensor = F.ctc_loss(
            logs, target[:, 1:], heard, said.clamp_min(0), blank=BLANK, reduction="sum", zero_infinity=True
        )
        return loss
