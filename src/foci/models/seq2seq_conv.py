"""ConvS2S: convolutions instead of recurrence, and attention in every decoder layer.

    h⁰_i = w_i + p_i,   v_i = GLU(W ∗ h^{l−1})_i
    encoder   z^l_i = (v_i + z^{l−1}_i) · sqrt(0.5)
    decoder   c_i = attention(v_i, g_i; z, z + e),   h^l_i = ((v_i + c_i) · sqrt(0.5) + h^{l−1}_i) · sqrt(0.5)
    p(y_{i+1}) = softmax(W_o h^L_i + b_o)

Paper: Convolutional Sequence to Sequence Learning (Gehring et al., 2017), section 3, eqs. 1-2
Names: w = embedding, p = positions, e = source embedded, g = target embedded, z = encoded.keys,
    z + e = encoded.values, v([A B]) = GatedConvolution, k = kernel size, d = width, f = embedding_dim, c_i = context
Complexity: O((S + T) · k · d²) per layer, all positions at once; O(k · d²) per layer and decoding step
Differs: the paper adds c to the state that the residual is part of already; here, as in the authors' program, the
    residual comes last. Of its scaling by sqrt(0.5), every sum of two in the equations above has one; z + e is left as
    its eq. 2 has it. c goes through a linear layer of its own to the width d. Weights are normalized, and start as in
    its section 3.5. The gradient of z, not that of e, is divided by the number of attentions, as in its section 3.4.
"""

from __future__ import annotations

from typing import Any

from foci.layers.conv import LayerSizes
from foci.models.build import build_seq2seq
from foci.models.encoder_decoder import EncoderDecoder
from foci.models.options.decoders import ConvolutionalDecoderOptions
from foci.models.options.seq2seq import Seq2SeqOptions
from foci.models.options.text_encoders import ConvolutionalTextEncoderOptions

PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {"embedding_dim": 128, "encoder_layers": [(128, 3)] * 4, "decoder_layers": [(128, 3)] * 3, "dropout": 0.2},
    "small": {"embedding_dim": 256, "encoder_layers": [(256, 3)] * 4, "decoder_layers": [(256, 3)] * 3, "dropout": 0.2},
    "base": {
        "embedding_dim": 512,
        "encoder_layers": [(512, 3)] * 20,
        "decoder_layers": [(512, 3)] * 20,
        "dropout": 0.2,
    },
    "wmt_en_de": {
        "embedding_dim": 768,
        "encoder_layers": [(512, 3)] * 9 + [(1024, 3)] * 4 + [(2048, 1)] * 2,
        "decoder_layers": [(512, 3)] * 9 + [(1024, 3)] * 4 + [(2048, 1)] * 2,
        "dropout": 0.2,
    },
}
"""Sizes by name: `base` is of the paper's model for English-Romanian, `wmt_en_de` of the authors' program."""


class ConvSeq2Seq(EncoderDecoder):
    """Convolutional sequence to sequence: trains all positions in parallel, decodes from small caches.

    Args:
        source_vocabulary: number of source tokens.
        target_vocabulary: number of target tokens.
        embedding_dim: size of the embeddings, and of the keys and values of attention.
        encoder_layers: ``(width, kernel size)`` of each encoder layer; the kernel sizes are odd.
        decoder_layers: the same of each decoder layer; any kernel size.
        max_length: the longest source or target.
        copy: also produce words of the source by the last layer's attention to them; see `foci.layers.copying`.
        dropout: on embeddings, on the inputs of convolutions, and before the output layer.
        share_embeddings: one table for source, target and output layer; needs one vocabulary.

    Weight normalization is part of the model in training; before long decoding, fold it with
    `foci.layers.conv.fold_weight_norm`.

    Example:
        >>> import torch
        >>> model = ConvSeq2Seq(11, 13, embedding_dim=3, encoder_layers=[(5, 3)], decoder_layers=[(5, 3)] * 2)
        >>> source, valid = torch.ones(2, 5, dtype=torch.long), torch.ones(2, 5, dtype=torch.bool)
        >>> predicted = model(source, valid, torch.ones(2, 7, dtype=torch.long))
        >>> predicted.logits.shape, list(predicted.attentions)
        (torch.Size([2, 7, 13]), ['decoder.0.cross', 'decoder.1.cross'])
    """

    def __init__(
        self,
        source_vocabulary: int,
        target_vocabulary: int,
        *,
        embedding_dim: int = 256,
        encoder_layers: LayerSizes = ((256, 3),) * 4,
        decoder_layers: LayerSizes = ((256, 3),) * 3,
        max_length: int = 1024,
        copy: bool = False,
        dropout: float = 0.0,
        share_embeddings: bool = False,
    ) -> None:
        options = Seq2SeqOptions(
            encoder=ConvolutionalTextEncoderOptions(
                embedding_dim=embedding_dim,
                layers=tuple(encoder_layers),
                max_length=max_length,
                dropout=dropout,
            ),
            decoder=ConvolutionalDecoderOptions(
                layers=tuple(decoder_layers),
                max_length=max_length,
                copy=copy,
                dropout=dropout,
            ),
            share_embeddings=share_embeddings,
        )
        built = build_seq2seq(source_vocabulary, target_vocabulary, options)
        super().__init__(built.encoder, built.decoder)
