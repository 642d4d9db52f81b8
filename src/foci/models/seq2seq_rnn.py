"""Recurrent sequence to sequence: a recurrent encoder and a recurrent decoder, with or without attention.

    h = encoder(source),   p(y_t | y_<t, source) as in `foci.models.decoders.recurrent`, in its four kinds

Paper: Sequence to Sequence Learning with Neural Networks (Sutskever, Vinyals, Le, 2014); Learning Phrase
    Representations using RNN Encoder-Decoder for Statistical Machine Translation (Cho et al., 2014); Neural Machine
    Translation by Jointly Learning to Align and Translate (Bahdanau, Cho, Bengio, 2015); Effective Approaches to
    Attention-based Neural Machine Translation (Luong, Pham, Manning, 2015)
Names: h = encoded.values
Complexity: O(S + T) recurrent steps of O(D²), plus the attention's T reads; without input feeding T steps are one call
Differs: Where the encoder has two directions, both final states start the decoder through one layer (Bahdanau takes the
    backward one alone). Otherwise as in `foci.models.encoders.recurrent` and `foci.models.decoders.recurrent`.
"""

from __future__ import annotations

from typing import Any

from foci.models.build import build_seq2seq
from foci.models.encoder_decoder import EncoderDecoder
from foci.models.options.attention import AttentionOptions
from foci.models.options.decoders import RecurrentDecoderOptions
from foci.models.options.seq2seq import Seq2SeqOptions
from foci.models.options.text_encoders import RecurrentTextEncoderOptions

PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {"embedding_dim": 128, "hidden_dim": 256, "cell": "gru", "decoder": "luong", "dropout": 0.2},
    "sutskever": {
        "embedding_dim": 1000,
        "hidden_dim": 1000,
        "num_layers": 4,
        "cell": "lstm",
        "bidirectional": False,
        "decoder": "sutskever",
    },
    "cho": {
        "embedding_dim": 100,
        "hidden_dim": 1000,
        "readout_dim": 500,
        "cell": "gru",
        "bidirectional": False,
        "decoder": "cho",
    },
    "rnnsearch": {
        "embedding_dim": 620,
        "hidden_dim": 1000,
        "encoder_dim": 2000,
        "readout_dim": 500,
        "attention_dim": 1000,
        "cell": "gru",
        "decoder": "bahdanau",
        "score": "additive",
    },
    "luong": {
        "embedding_dim": 1000,
        "hidden_dim": 1000,
        "num_layers": 4,
        "cell": "lstm",
        "bidirectional": False,
        "decoder": "luong",
        "score": "general",
        "dropout": 0.2,
    },
    "luong_local": {
        "embedding_dim": 1000,
        "hidden_dim": 1000,
        "num_layers": 4,
        "cell": "lstm",
        "bidirectional": False,
        "decoder": "luong",
        "score": "general",
        "focus": "local_p",
        "radius": 10,
        "dropout": 0.2,
    },
}


class RecurrentSeq2Seq(EncoderDecoder):
    """A recurrent encoder for text with a recurrent decoder.

    Args:
        source_vocabulary: number of source tokens.
        target_vocabulary: number of target tokens.
        embedding_dim: size of the embeddings.
        hidden_dim: size of the decoder's state.
        encoder_dim: size of the annotations, both directions together. Default: the decoder's.
        readout_dim: size of the output layer's input; the decoder's, or the embeddings' where they are shared.
        num_layers: layers of the encoder and of the decoder.
        cell: "lstm" or "gru".
        bidirectional: whether the encoder also runs in the backward direction.
        decoder: "sutskever" and "cho" (no attention), "bahdanau" (attention before the recurrent step), "luong" (after
            it).
        input_feeding: Luong's: the attention output of a step is an input of the next one. Without it (and without
            coverage) teacher forcing computes all steps at once.
        score, normalize, focus, sharpening, radius, reach, max_length: as in `foci.Attention`. Decoders without
            attention ignore them. A focus that slides with the queries ("causal", "sliding_window") has no meaning
            here.
        attention_dim: size of the hidden layer of additive, concat and location_aware scores. Default: the state's.
        num_heads: use multi-head attention, as in `foci.models.decoders.recurrent.RecurrentDecoder`.
        coverage: add the sum of the previous weights to the keys (See 2017); `foci.layers.coverage.coverage_loss`
            computes the loss of ``attentions["decoder.cross"]``.
        copy: also produce words of the source by the attention to them; see `foci.layers.copying`.
        dropout: on embeddings, between layers, and before the output layer.
        share_embeddings: one table for source, target and output layer; needs one vocabulary.
        embedding_bound: the embeddings begin uniform within ± this. With few features (128) torch's recurrent layers
            learn faster from 0.9.

    With ``normalize="sample"`` the attention is trained by REINFORCE: in training
    ``attentions["decoder.cross"].log_prob (B, T)`` is what `foci.functional.sample.reinforce` needs.

    Example:
        >>> import torch
        >>> model = RecurrentSeq2Seq(11, 13, embedding_dim=3, hidden_dim=4, decoder="bahdanau", score="additive")
        >>> source, valid = torch.ones(2, 5, dtype=torch.long), torch.ones(2, 5, dtype=torch.bool)
        >>> predicted = model(source, valid, torch.ones(2, 7, dtype=torch.long))
        >>> predicted.logits.shape, predicted.attentions["decoder.cross"].shape
        (torch.Size([2, 7, 13]), torch.Size([2, 7, 5]))
    """

    def __init__(
        self,
        source_vocabulary: int,
        target_vocabulary: int,
        *,
        embedding_dim: int = 256,
        hidden_dim: int = 512,
        encoder_dim: int | None = None,
        readout_dim: int | None = None,
        num_layers: int = 1,
        cell: Any = "gru",
        bidirectional: bool = True,
        decoder: Any = "luong",
        input_feeding: bool = True,
        score: Any = "general",
        normalize: Any = "softmax",
        focus: Any = "global",
        attention_dim: int | None = None,
        sharpening: float = 1.0,
        radius: int | None = None,
        reach: tuple[int, int] | None = None,
        max_length: int | None = None,
        num_heads: int | None = None,
        coverage: bool = False,
        copy: bool = False,
        dropout: float = 0.0,
        share_embeddings: bool = False,
        embedding_bound: float = 0.1,
    ) -> None:
        options = Seq2SeqOptions(
            encoder=RecurrentTextEncoderOptions(
                embedding_dim=embedding_dim,
                embedding_init_range=embedding_bound,
                hidden_dim=hidden_dim if encoder_dim is None else encoder_dim,
                num_layers=num_layers,
                cell=cell,
                bidirectional=bidirectional,
                dropout=dropout,
            ),
            decoder=RecurrentDecoderOptions(
                variant=decoder,
                embedding_dim=embedding_dim,
                embedding_init_range=embedding_bound,
                hidden_dim=hidden_dim,
                readout_dim=readout_dim,
                num_layers=num_layers,
                cell=cell,
                input_feeding=input_feeding,
                coverage=coverage,
                copy=copy,
                dropout=dropout,
            ),
            attention=AttentionOptions()
            if decoder in ("sutskever", "cho")
            else AttentionOptions(
                score=score,
                normalize=normalize,
                focus=focus,
                hidden_dim=attention_dim,
                sharpening=sharpening,
                radius=radius,
                window=reach,
                max_length=max_length,
                num_heads=num_heads,
            ),
            share_embeddings=share_embeddings,
        )
        built = build_seq2seq(source_vocabulary, target_vocabulary, options)
        super().__init__(built.encoder, built.decoder)
