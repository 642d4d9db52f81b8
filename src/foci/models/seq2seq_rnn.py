"""Recurrent sequence to sequence: an encoder, a decoder, and four ways to bring the source to the target.

    sutskever   s_t = f(y_{t−1}, s_{t−1}),   p(y_t) = softmax(W s_t)
    cho         s_t = f([y_{t−1}; c], s_{t−1}),   c = tanh(V h_S),
                p(y_t) = softmax(W maxout[s_t; y_{t−1}; c])
    bahdanau    c_t = attention(s_{t−1}, h),   s_t = f([y_{t−1}; c_t], s_{t−1}),
                p(y_t) = softmax(W maxout[s_t; y_{t−1}; c_t])
    luong       s_t = f([y_{t−1}; h̃_{t−1}], s_{t−1}),   c_t = attention(s_t, h),
                h̃_t = tanh(W_c [c_t; s_t]),   p(y_t) = softmax(W h̃_t)

Paper: Sequence to Sequence Learning with Neural Networks (Sutskever, Vinyals, Le, 2014), eq. 1; Learning Phrase
    Representations using RNN Encoder-Decoder for Statistical Machine Translation (Cho et al., 2014), section 2.2 and
    appendix A; Neural Machine Translation by Jointly Learning to Align and Translate (Bahdanau, Cho, Bengio, 2015),
    eqs. 4-7 and appendix A.2; Effective Approaches to Attention-based Neural Machine Translation (Luong, Pham, Manning,
    2015), eqs. 5-6 and section 3.3
Names: h = annotations (the memory), s_t = hidden, y_{t-1} = token, c = summary, c_t = context, h̃_t = readout and feed
Complexity: O(S + T) cells of O(D²), plus the attention's T reads; without input feeding T cells are one call
Differs: What becomes of the summary h_S: Sutskever's LSTM starts from the encoder's final states and never sees them
    again; Cho's GRU starts from it and sees it at every step, in its gates and in its output. Both are so here, for
    either cell. Where there are two directions, both final states start the decoder through one layer (Bahdanau takes
    the backward one alone). Bahdanau's output layer sees s_t (his appendix writes s_{t−1} there, his eq. 4 s_t). LSTM
    and GRU are torch's. Sutskever reads the source from its end: turn it around in the data. Luong's h̃ is fed as it is,
    dropout comes after. All embeddings start uniform within ±0.1, as Luong's.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from foci import masks
from foci.errors import ConfigError, check_ids, check_valid, unknown_name
from foci.layers.coverage import Coverage
from foci.layers.dropout import Dropout
from foci.layers.hypotheses import as_queries, as_rows, hypotheses_each, in_time
from foci.layers.next_token import Wanted, predict_or_learn
from foci.layers.recurrent import Bridge, Maxout, Recurrence, RecurrentEncoder, State
from foci.layers.seq2seq import Learned, Predicted, Stepped
from foci.mechanisms.attention import Attention, Memory
from foci.mechanisms.focus import LocalM, MedianWindow, SlidingWindow
from foci.mechanisms.scores import LocationAware
from foci.results import Weights, exportable

DECODERS = ("sutskever", "cho", "bahdanau", "luong")

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


@exportable
class RecurrentMemory(NamedTuple):
    """What the decoder may read of its sources: cells for attention, or Cho's summary ``(B, E)``, or neither."""

    cells: Memory | None
    summary: Tensor | None


@exportable
class DecoderState(NamedTuple):
    """Everything a hypothesis carries from step to step, N rows each.

    ``recurrent`` are the cells' states, ``reading`` the attention's, ``feed (N, R)`` Luong's h̃, ``covered (N, S)`` how
    much of every source cell was read.
    """

    recurrent: State
    reading: Tensor | None
    feed: Tensor | None
    covered: Tensor | None


class RecurrentSeq2Seq(nn.Module):
    """An RNN that writes what another RNN has read, with or without attention.

    Arguments:
        source_vocabulary: how many source tokens there are.
        target_vocabulary: how many target tokens.
        embedding_dim: size of the embeddings.
        hidden_dim: size of the decoder's state.
        encoder_dim: size of the annotations, both directions together; the decoder's unless given.
        readout_dim: size of what the output layer sees; the decoder's, or the embeddings' where they are shared.
        num_layers: layers of the encoder and of the decoder.
        cell: "lstm" or "gru".
        bidirectional: whether the encoder also reads backwards.
        decoder: "sutskever" and "cho" (no attention), "bahdanau" (reads before its step), "luong" (reads after it).
        input_feeding: Luong's: each step sees what the last one read. Without it (and without coverage) teacher forcing
            runs all steps at once.
        score, normalise, focus, sharpening, radius, reach, max_length: as in `foci.Attention`; ``attention_dim`` is its
            hidden_dim. Decoders without attention ignore them. A focus that slides with the queries ("causal",
            "sliding_window") has no meaning here.
        coverage: tell the attention what it has read (See 2017); `foci.layers.coverage.coverage_loss` makes the loss of
            ``attentions["decoder.cross"]``.
        dropout: on embeddings, between layers, and before the output layer.
        share_embeddings: one table for source, target and output layer; needs one vocabulary.
        padding: the id whose embedding stays 0.

    With ``normalise="sample"`` the attention learns by REINFORCE: in training ``attentions["decoder.cross"].log_prob
    (B, T)`` is what `foci.functional.sample.reinforce` needs.

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
        cell: str = "gru",
        bidirectional: bool = True,
        decoder: str = "luong",
        input_feeding: bool = True,
        score: str = "general",
        normalise: str = "softmax",
        focus: str = "global",
        attention_dim: int | None = None,
        sharpening: float = 1.0,
        radius: int | None = None,
        reach: tuple[int, int] | None = None,
        max_length: int | None = None,
        coverage: bool = False,
        dropout: float = 0.0,
        share_embeddings: bool = False,
        padding: int = 0,
    ) -> None:
        super().__init__()
        if decoder not in DECODERS:
            raise unknown_name("decoder", decoder, DECODERS)
        encoder_dim = hidden_dim if encoder_dim is None else encoder_dim
        if readout_dim is None:
            readout_dim = embedding_dim if share_embeddings else hidden_dim
        self.decoder = decoder
        self.feeds = decoder == "luong" and input_feeding
        self.dropout = Dropout(dropout)
        self.output = nn.Linear(readout_dim, target_vocabulary)
        self.source_embedding = nn.Embedding(source_vocabulary, embedding_dim, padding)
        self.target_embedding = nn.Embedding(target_vocabulary, embedding_dim, padding)
        self._set_embeddings(share_embeddings, padding)
        self.encoder = RecurrentEncoder(
            embedding_dim,
            encoder_dim,
            cell=cell,
            num_layers=num_layers,
            bidirectional=bidirectional,
            dropout=dropout,
        )
        copied = decoder in ("sutskever", "luong") and not bidirectional and encoder_dim == hidden_dim
        self.bridge = None if copied else Bridge(encoder_dim, hidden_dim, cell=cell)
        self.summary = nn.Linear(encoder_dim, encoder_dim) if decoder == "cho" else None
        extra = {"sutskever": 0, "cho": encoder_dim, "bahdanau": encoder_dim, "luong": readout_dim * self.feeds}
        self.recurrence = Recurrence(
            embedding_dim + extra[decoder], hidden_dim, cell=cell, num_layers=num_layers, dropout=dropout
        )
        self.readout: nn.Module
        if decoder == "sutskever":
            same = readout_dim == hidden_dim
            self.readout = nn.Identity() if same else nn.Linear(hidden_dim, readout_dim, bias=False)
        elif decoder == "luong":
            self.readout = nn.Sequential(nn.Linear(encoder_dim + hidden_dim, readout_dim, bias=False), nn.Tanh())
        else:
            self.readout = Maxout(hidden_dim + embedding_dim + encoder_dim, readout_dim)
        self.attention: Attention | None = None
        self.coverage: Coverage | None = None
        if decoder in ("bahdanau", "luong"):
            self.attention = Attention(
                hidden_dim,
                encoder_dim,
                attention_dim,
                score=score,
                normalise=normalise,
                focus=focus,
                sharpening=sharpening,
                radius=radius,
                reach=reach,
                max_length=max_length,
            )
            if isinstance(self.attention.focus, SlidingWindow):
                raise ConfigError(
                    f"RecurrentSeq2Seq: focus {focus!r} slides over one's own sequence, expected 'global', 'local_m', "
                    "'local_p' or 'median_window' for reading another."
                )
            if coverage:
                projected = self.attention.score.project_key(torch.zeros(1, 1, encoder_dim))
                self.coverage = Coverage(projected.shape[-1])
        elif coverage:
            raise ConfigError(f"RecurrentSeq2Seq: coverage needs attention; the decoder {decoder!r} has none.")

    def _set_embeddings(self, shared: bool, padding: int) -> None:
        for table in (self.source_embedding, self.target_embedding):
            nn.init.uniform_(table.weight, -0.1, 0.1)
            with torch.no_grad():
                table.weight[padding] = 0.0
        if not shared:
            return
        if self.source_embedding.num_embeddings != self.target_embedding.num_embeddings:
            raise ConfigError(
                f"RecurrentSeq2Seq: share_embeddings with {self.source_embedding.num_embeddings} source and "
                f"{self.target_embedding.num_embeddings} target tokens, expected one vocabulary for both."
            )
        if self.output.in_features != self.target_embedding.embedding_dim:
            raise ConfigError(
                f"RecurrentSeq2Seq: share_embeddings with readout_dim {self.output.in_features} and embedding_dim "
                f"{self.target_embedding.embedding_dim}, expected the same. Leave readout_dim out."
            )
        self.source_embedding = self.target_embedding
        self.output.weight = self.target_embedding.weight

    def forward(
        self,
        source: Int[Tensor, "B S"],
        source_valid: Bool[Tensor, "B S"],
        target: Int[Tensor, "B T"],
        wanted: Wanted | None = None,
    ) -> Predicted | Learned:
        """Teacher forcing: ``logits[:, t]`` predict ``target[:, t + 1]``; the loss if what is ``wanted`` is given."""
        memory, state = self.start(source, source_valid)
        check_ids("RecurrentSeq2Seq", "target", target, source.shape[0], "time")
        embedded = self.dropout(self.target_embedding(target))
        weights: Weights | None
        if target.shape[1] == 0:
            readout = embedded.new_zeros(*target.shape, self.output.in_features)
            nothing = embedded.new_zeros(*target.shape, source.shape[1])
            weights = None if self.attention is None else Weights.of(nothing)
        elif self.attention is None or (self.decoder == "luong" and not self.feeds and self.coverage is None):
            readout, weights = self._all_steps(embedded, memory, state)
        else:
            readout, weights = self._each_step(embedded, memory, state)
        attentions = {} if weights is None else {"decoder.cross": weights}
        return predict_or_learn(self.dropout(readout), self.output, attentions, wanted)

    def start(
        self, source: Int[Tensor, "B S"], source_valid: Bool[Tensor, "B S"]
    ) -> tuple[RecurrentMemory, DecoderState]:
        """Encode the sources; the memory and the first state, B rows each."""
        check_ids("RecurrentSeq2Seq", "source", source, "batch", "position")
        check_valid("RecurrentSeq2Seq", "source_valid", source_valid, source.shape[0], source.shape[1], source.device)
        annotations, final = self.encoder(self.dropout(self.source_embedding(source)), source_valid)
        summary = None
        if self.summary is not None:
            summaries = torch.tanh(self.summary(final[0]))
            final, summary = (summaries, *final[1:]), summaries[:, -1]
        cells = None
        if self.attention is not None:
            cells = self.attention.prepare(annotations, None, masks.keys(source_valid))
        state = DecoderState(
            recurrent=final if self.bridge is None else self.bridge(final),
            reading=None,
            feed=annotations.new_zeros(source.shape[0], self.output.in_features) if self.feeds else None,
            covered=annotations.new_zeros(source.shape) if self.coverage is not None else None,
        )
        return RecurrentMemory(cells, summary), state

    def step(self, token: Int[Tensor, " N"], memory: RecurrentMemory, state: DecoderState) -> Stepped:
        """The scores of what follows ``token`` in each of N hypotheses."""
        check_ids("RecurrentSeq2Seq", "token", token, "row")
        embedded = self.dropout(self.target_embedding(token))
        readout, weights, state = self._advance(embedded, memory, state)
        return Stepped(self.output(self.dropout(readout)), state, weights)

    def _each_step(
        self, embedded: Tensor, memory: RecurrentMemory, state: DecoderState
    ) -> tuple[Tensor, Weights | None]:
        """One step after the other: each needs what the last one read."""
        readouts, weights = [], []
        for word in embedded.unbind(dim=1):
            readout, read, state = self._advance(word, memory, state)
            readouts.append(readout)
            weights += [] if read is None else [read]
        return torch.stack(readouts, dim=1), in_time(weights) if weights else None

    def _all_steps(
        self, embedded: Tensor, memory: RecurrentMemory, state: DecoderState
    ) -> tuple[Tensor, Weights | None]:
        """All steps at once, where none needs what the last one read."""
        if memory.summary is not None:
            summary = memory.summary.unsqueeze(1).expand(-1, embedded.shape[1], -1)
            hidden, _ = self.recurrence(torch.cat([embedded, summary], dim=-1), state.recurrent)
            return self.readout(torch.cat([hidden, embedded, summary], dim=-1)), None
        hidden, _ = self.recurrence(embedded, state.recurrent)
        if self.attention is None or memory.cells is None:
            return self.readout(hidden), None
        context, weights, _ = self.attention.read(hidden, memory.cells)
        return self.readout(torch.cat([context, hidden], dim=-1)), weights

    def _advance(
        self, embedded: Float[Tensor, "N E"], memory: RecurrentMemory, state: DecoderState
    ) -> tuple[Float[Tensor, "N R"], Weights | None, DecoderState]:
        """One step of every hypothesis: what the output layer sees, what was read, and the state after it."""
        if self.decoder == "luong":
            state, hidden = self._recur(state, embedded, state.feed)
            context, weights, state = self._read(hidden, memory.cells, state)
            readout = self.readout(torch.cat([context, hidden], dim=-1))
            return readout, weights, state._replace(feed=readout if self.feeds else None)
        if self.decoder == "bahdanau":
            context, weights, state = self._read(state.recurrent[0][:, -1], memory.cells, state)
            state, hidden = self._recur(state, embedded, context)
            return self.readout(torch.cat([hidden, embedded, context], dim=-1)), weights, state
        if memory.summary is not None:
            sources = memory.summary.shape[0]
            each = hypotheses_each("RecurrentSeq2Seq", embedded.shape[0], sources)
            summary = memory.summary.repeat_interleave(each, dim=0)
            state, hidden = self._recur(state, embedded, summary)
            return self.readout(torch.cat([hidden, embedded, summary], dim=-1)), None, state
        state, hidden = self._recur(state, embedded, None)
        return self.readout(hidden), None, state

    def _recur(self, state: DecoderState, embedded: Tensor, extra: Tensor | None) -> tuple[DecoderState, Tensor]:
        inputs = embedded if extra is None else torch.cat([embedded, extra], dim=-1)
        hidden, recurrent = self.recurrence(inputs.unsqueeze(1), state.recurrent)
        return state._replace(recurrent=recurrent), hidden.squeeze(1)

    def _read(
        self, query: Float[Tensor, "N D"], cells: Memory | None, state: DecoderState
    ) -> tuple[Float[Tensor, "N E"], Weights, DecoderState]:
        if self.attention is None or cells is None:
            raise ConfigError("RecurrentSeq2Seq: the memory has no cells to read. Pass what start() returned.")
        each = hypotheses_each("RecurrentSeq2Seq", query.shape[0], cells.value.shape[0])
        if self._remembers and each > 1:  # every hypothesis has read other cells: each needs a row of its own
            repeated = (None if part is None else part.repeat_interleave(each, dim=0) for part in cells)
            cells = Memory(*repeated)  # type: ignore[arg-type]
        if self.coverage is not None and state.covered is not None:
            cells = self.coverage(cells, state.covered)
        queries = as_queries("RecurrentSeq2Seq", query, cells.value.shape[0])
        context, weights, reading = self.attention.read(queries, cells, state.reading)
        weights = as_rows(weights)
        covered = state.covered
        if covered is not None:
            covered = covered + weights.dense().squeeze(1)
        return context.flatten(0, 1), weights, state._replace(reading=reading, covered=covered)

    @property
    def _remembers(self) -> bool:
        """Whether a read depends on the reads of the same hypothesis before it."""
        attention = self.attention
        return attention is not None and (
            self.coverage is not None
            or isinstance(attention.score, LocationAware)
            or isinstance(attention.focus, LocalM | MedianWindow)
        )
