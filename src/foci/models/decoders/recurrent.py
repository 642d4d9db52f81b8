"""The recurrent decoder, in five kinds that differ in how the decoder uses the source.

    sutskever   s_t = f(y_{t−1}, s_{t−1}),   p(y_t) = softmax(W s_t);   without a source: a language model
    cho         s_t = f([y_{t−1}; c], s_{t−1}),   c = tanh(V h_S),
                p(y_t) = softmax(W maxout[s_t; y_{t−1}; c])
    bahdanau    c_t = attention(s_{t−1}, h),   s_t = f([y_{t−1}; c_t], s_{t−1}),
                p(y_t) = softmax(W maxout[s_t; y_{t−1}; c_t])
    luong       s_t = f([y_{t−1}; h̃_{t−1}], s_{t−1}),   c_t = attention(s_t, h),
                h̃_t = tanh(W_c [c_t; s_t]),   p(y_t) = softmax(W h̃_t)
    xu          c_t = β_t attention(s_{t−1}, h),   β_t = σ(w_β s_{t−1} + b_β),   s_t = f([y_{t−1}; c_t], s_{t−1}),
                p(y_t) = softmax(W (y_{t−1} + L [s_t; c_t]))

Paper: Sequence to Sequence Learning with Neural Networks (Sutskever, Vinyals, Le, 2014), eq. 1; Learning Phrase
    Representations using RNN Encoder-Decoder for Statistical Machine Translation (Cho et al., 2014), section 2.2 and
    appendix A; Neural Machine Translation by Jointly Learning to Align and Translate (Bahdanau, Cho, Bengio, 2015),
    eqs. 4-7 and appendix A.2; Effective Approaches to Attention-based Neural Machine Translation (Luong, Pham, Manning,
    2015), eqs. 5-6 and section 3.3; Show, Attend and Tell (Xu et al., 2015), eqs. 1-7 and section 4.2.1; copying and
    coverage: Get To The Point (See, Liu, Manning, 2017)
Names: h = encoded.values (the memory), h_S = encoded.summary, s_t = hidden, y_{t-1} = token, c = summary,
    c_t = context, h̃_t = readout and feed, β_t = gate, L = readout.layer
Complexity: O(T) recurrent steps of O(D²), plus the attention's T reads; without input feeding all steps are one call
Differs: The summary h_S: Sutskever's LSTM starts from the encoder's final states and does not see them again; Cho's GRU
    starts from it and sees it at every step, in its gates and in its output. Both hold here for either cell. Of a
    source without a summary, the mean of its values takes its place, as in Xu et al. (2015). The first state goes
    through a layer unless it is copied (Bahdanau takes the backward direction's alone). Bahdanau's output layer sees
    s_t (his appendix writes s_{t−1} there, his eq. 4 s_t). LSTM and GRU are torch's. Luong's h̃ is fed without dropout.
    Embeddings start uniform within ±0.1, as Luong's, unless another range is given.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from foci.checks import check_ids
from foci.errors import ConfigError, ShapeError, check_positive, unknown_name
from foci.layers.copying import CopyHead, check_copied
from foci.layers.coverage import Coverage
from foci.layers.dropout import Dropout
from foci.layers.embedding import uniform_table
from foci.layers.incremental.hypotheses import as_queries, as_rows, hypotheses_each, stack_steps
from foci.layers.interfaces import DecoderStep, EncoderOutput, check_encoded, source_mask
from foci.layers.recurrent import Bridge, DeepOutput, Maxout, Recurrence, State
from foci.layers.token_loss import Targets, TokenLogits, TokenLoss, logits_or_loss
from foci.mechanisms.attention import Attention, Memory
from foci.mechanisms.focus import LocalM, MedianWindow, SlidingWindow
from foci.mechanisms.heads import MultiHeadAttention
from foci.mechanisms.heads.multi_head import ProjectedMemory
from foci.mechanisms.sampled import SampledAttention, SampledState
from foci.mechanisms.scores import LocationAware, Score
from foci.tracing import exportable
from foci.weights import Weights

KINDS = ("sutskever", "cho", "bahdanau", "luong", "xu")
HEAD_SCORES = ("scaled_dot", "dot", "cosine")
"""The scores of multi-head attention."""


@exportable
class RecurrentMemory(NamedTuple):
    """The sources as the steps use them, B rows.

    Attributes:
        cells: the source as attention reads it; None without attention.
        summary: Cho's c, ``(B, E)``; None for the other kinds.
        copied: what each cell is as a target token, ``(B, S)``; None without copying.
    """

    cells: Memory | ProjectedMemory | None
    summary: Tensor | None
    copied: Tensor | None = None


@exportable
class RecurrentState(NamedTuple):
    """The state of each hypothesis between two steps, N rows.

    Attributes:
        recurrent: the state of the recurrent layers.
        reading: the attention's state, a tree of tensors with N rows.
        feed: Luong's h̃, ``(N, R)``.
        covered: the sum of the weights so far over every cell of the source, ``(N, S)``.
    """

    recurrent: State
    reading: Any
    feed: Tensor | None
    covered: Tensor | None


class RecurrentDecoder(nn.Module):
    """An LSTM or GRU that predicts a target, with attention to a source, with its summary alone, or without a source.

    Args:
        vocabulary: number of target tokens.
        source_dim: size of the source's cells and of its summary; None for a language model.
        embedding_dim: size of the embeddings.
        embedding_range: the embeddings start uniform within ± this.
        hidden_dim: size of the recurrent state.
        readout_dim: size of the output layer's input; the state's, or the embeddings' with ``tie_output``.
        num_layers: number of recurrent layers.
        cell: "lstm" or "gru".
        kind: "sutskever" and "cho" (no attention), "bahdanau" (attention before the recurrent step), "xu" (the same,
            with a gate on what was read), "luong" (after it). Unless given, "luong" with a source and "sutskever"
            without.
        copy_state: start from the source's summary itself, which must have the decoder's cell, layers and size;
            otherwise a layer maps it to the first state.
        input_feeding: Luong's: the attention output of a step is an input of the next one. Without it (and without
            coverage) teacher forcing computes all steps at once.
        score, normalize, focus, sharpening, radius, reach, max_source_length: as in `foci.Attention`;
            ``attention_dim`` is its hidden_dim, ``max_source_length`` its max_length. Kinds without attention ignore
            them. A focus that slides with the queries ("causal", "sliding_window") has no meaning here.
        start_at_first: before the first step, an attention that depends on the previous weights has weight 1 on the
            first cell instead of none, for targets in the order of the source; with score="location_aware" or
            focus="median_window".
        num_heads: use multi-head attention, whose heads together have the size of the state; its ``score`` is
            "scaled_dot", "dot" or "cosine", its focus "global".
        expectation_share: with normalize="sample", the share of the rows that read the weighted sum in training, as
            `foci.mechanisms.sampled.SampledAttention` does, whose handle also has the probabilities.
        coverage: add the sum of the previous weights to the keys (See 2017); `foci.layers.coverage.coverage_loss`
            computes the loss of ``attentions["decoder.cross"]``.
        copy: also produce words of the source by the attention to them (See 2017); see `foci.layers.copying`.
        dropout: on embeddings, between layers, and before the output layer.
        tie_output: use the embedding table also as the matrix before the softmax.
        padding: the id whose embedding stays 0.

    With ``normalize="sample"`` the attention is trained by REINFORCE: in training
    ``attentions["decoder.cross"].log_prob (B, T)`` is what `foci.functional.sample.reinforce` needs.

    Example:
        >>> import torch
        >>> decoder = RecurrentDecoder(13, source_dim=4, embedding_dim=3, hidden_dim=6)
        >>> regions = EncoderOutput(torch.zeros(2, 5, 4), torch.ones(2, 5, dtype=torch.bool))
        >>> predicted = decoder(regions, torch.ones(2, 7, dtype=torch.long))
        >>> predicted.logits.shape, predicted.attentions["decoder.cross"].shape
        (torch.Size([2, 7, 13]), torch.Size([2, 7, 5]))
    """

    max_length: int | None = None  # a recurrence has no longest target

    def __init__(
        self,
        vocabulary: int,
        *,
        source_dim: int | None = None,
        embedding_dim: int = 256,
        embedding_range: float = 0.1,
        hidden_dim: int = 512,
        readout_dim: int | None = None,
        num_layers: int = 1,
        cell: str = "gru",
        kind: str | None = None,
        copy_state: bool = False,
        input_feeding: bool = True,
        score: str | Score = "general",
        normalize: str = "softmax",
        focus: str = "global",
        attention_dim: int | None = None,
        sharpening: float = 1.0,
        radius: int | None = None,
        reach: tuple[int, int] | None = None,
        max_source_length: int | None = None,
        start_at_first: bool = False,
        num_heads: int | None = None,
        expectation_share: float | None = None,
        coverage: bool = False,
        copy: bool = False,
        dropout: float = 0.0,
        tie_output: bool = False,
        padding: int = 0,
    ) -> None:
        super().__init__()
        check_positive("RecurrentDecoder", vocabulary=vocabulary, embedding_dim=embedding_dim)
        check_positive("RecurrentDecoder", embedding_range=embedding_range)
        kind = kind or ("sutskever" if source_dim is None else "luong")
        if kind not in KINDS:
            raise unknown_name("decoder", kind, KINDS)
        if source_dim is None and kind != "sutskever":
            raise ConfigError(
                f"RecurrentDecoder: kind is {kind!r} and source_dim is None, expected the size of the source. "
                "Use kind='sutskever' without a source."
            )
        if readout_dim is None:
            readout_dim = embedding_dim if tie_output or kind == "xu" else hidden_dim
        if kind == "xu" and readout_dim != embedding_dim:
            raise ConfigError(
                f"RecurrentDecoder: kind is 'xu' with readout_dim {readout_dim} and embedding_dim {embedding_dim}, "
                "expected the same, since the embedding is added to the readout. Leave readout_dim out."
            )
        if expectation_share is not None and (normalize != "sample" or num_heads is not None):
            raise ConfigError(
                f"RecurrentDecoder: expectation_share is {expectation_share} with normalize {normalize!r} and "
                f"num_heads {num_heads}, expected normalize='sample' and one head."
            )
        cells_dim = source_dim or 0
        context_dim = cells_dim if num_heads is None else hidden_dim
        self.kind = kind
        self.source_dim = source_dim
        self.feeds = kind == "luong" and input_feeding
        self.dropout = Dropout(dropout)
        self.embedding = uniform_table(vocabulary, embedding_dim, bound=embedding_range, padding=padding)
        self.bridge = (
            None
            if source_dim is None or copy_state
            else Bridge(source_dim, hidden_dim, cell=cell, num_layers=num_layers)
        )
        self.summary = nn.Linear(cells_dim, cells_dim) if kind == "cho" else None
        extra = {
            "sutskever": 0,
            "cho": cells_dim,
            "bahdanau": context_dim,
            "luong": readout_dim * self.feeds,
            "xu": context_dim,
        }
        self.recurrence = Recurrence(
            embedding_dim + extra[kind], hidden_dim, cell=cell, num_layers=num_layers, dropout=dropout
        )
        self.readout: nn.Module
        if kind == "sutskever":
            same = readout_dim == hidden_dim
            self.readout = nn.Identity() if same else nn.Linear(hidden_dim, readout_dim, bias=False)
        elif kind == "luong":
            self.readout = nn.Sequential(nn.Linear(context_dim + hidden_dim, readout_dim, bias=False), nn.Tanh())
        elif kind == "xu":
            self.readout = DeepOutput(hidden_dim, embedding_dim, context_dim)
        else:
            self.readout = Maxout(hidden_dim + embedding_dim + extra[kind], readout_dim)
        self.gate = nn.Linear(hidden_dim, 1) if kind == "xu" else None
        self.attention: Attention | MultiHeadAttention | None = None
        self.coverage: Coverage | None = None
        if kind in ("bahdanau", "luong", "xu") and num_heads is not None:
            if score not in HEAD_SCORES or focus != "global" or coverage:
                raise ConfigError(
                    f"RecurrentDecoder: num_heads is {num_heads}, score is {score!r}, focus is {focus!r} and coverage "
                    f"is {coverage}, expected a score of {', '.join(HEAD_SCORES)}, focus 'global' and no coverage "
                    "with several heads."
                )
            self.attention = MultiHeadAttention(
                hidden_dim, num_heads, key_dim=source_dim, score=score, normalize=normalize
            )
        elif kind in ("bahdanau", "luong", "xu"):
            options: dict[str, Any] = {
                "score": score,
                "focus": focus,
                "sharpening": sharpening,
                "radius": radius,
                "reach": reach,
                "max_length": max_source_length,
            }
            sizes = (hidden_dim, source_dim, attention_dim)
            if expectation_share is None:
                self.attention = attention = Attention(*sizes, normalize=normalize, **options)
            else:
                self.attention = attention = SampledAttention(*sizes, expectation_share=expectation_share, **options)
            if isinstance(attention.focus, SlidingWindow):
                raise ConfigError(
                    f"RecurrentDecoder: focus {focus!r} is for self-attention, expected 'global', 'local_m', "
                    "'local_p' or 'median_window' for attention to a source."
                )
            if coverage:
                projected = attention.score.project_key(torch.zeros(1, 1, cells_dim))
                self.coverage = Coverage(projected.shape[-1])
        elif coverage:
            raise ConfigError(f"RecurrentDecoder: coverage needs attention; the decoder {kind!r} has none.")
        self.start_at_first = start_at_first
        if start_at_first and not self._reads_by_weights:
            raise ConfigError(
                f"RecurrentDecoder: start_at_first is True with kind {kind!r}, score {score!r} and focus {focus!r}, "
                "expected an attention that depends on the previous weights. Set score='location_aware' or "
                "focus='median_window'."
            )
        self.output = nn.Linear(readout_dim, vocabulary)
        if tie_output:
            if readout_dim != embedding_dim:
                raise ConfigError(
                    f"RecurrentDecoder: the output is tied with readout_dim {readout_dim} and embedding_dim "
                    f"{embedding_dim}, expected the same. Leave readout_dim out."
                )
            self.output.weight = self.embedding.weight
        self.copying: CopyHead | None = None
        if copy:
            if self.attention is None:
                raise ConfigError(f"RecurrentDecoder: copy needs attention; the decoder {kind!r} has none.")
            self.copying = CopyHead(readout_dim, vocabulary)

    def forward(
        self, encoded: EncoderOutput | None, target: Int[Tensor, "B T"], targets: Targets | None = None
    ) -> TokenLogits | TokenLoss:
        """Predict by teacher forcing: ``logits[:, t]`` predict ``target[:, t + 1]``; the loss with ``targets``."""
        check_ids("RecurrentDecoder", "target", target, *_batch(encoded), "time")
        memory, state = self.start(encoded, target.shape[0])
        embedded = self.dropout(self._embed(target))
        weights: Weights | None = None
        if target.shape[1] == 0:
            readout = embedded.new_zeros(*target.shape, self.output.in_features)
            if self.attention is not None and encoded is not None:
                heads = (self.attention.num_heads,) if isinstance(self.attention, MultiHeadAttention) else ()
                weights = Weights.from_tensor(embedded.new_zeros(len(target), *heads, 0, encoded.values.shape[1]))
        elif self.attention is None or (self.kind == "luong" and not self.feeds and self.coverage is None):
            readout, weights = self._all_steps(embedded, memory, state)
        else:
            readout, weights = self._each_step(embedded, memory, state)
        attentions = {} if weights is None else {"decoder.cross": weights}
        if self.copying is not None and weights is not None and memory.copied is not None:
            return self.copying.predict(self.dropout(readout), self.output, attentions, targets, weights, memory.copied)
        return logits_or_loss(self.dropout(readout), self.output, attentions, targets)

    def start(self, encoded: EncoderOutput | None, rows: int = 1) -> tuple[RecurrentMemory, RecurrentState]:
        """Return the memory and the first state.

        Args:
            encoded: the sources; None in a language model.
            rows: the number of hypotheses to start without a source.
        """
        check_encoded("RecurrentDecoder", encoded, self.source_dim)
        if encoded is None:
            return RecurrentMemory(None, None), RecurrentState(self._zeros(rows), None, None, None)
        values = encoded.values
        final = (encoded.mean().unsqueeze(1),) if encoded.summary is None else encoded.summary
        summary = None
        if self.summary is not None:
            summaries = torch.tanh(self.summary(final[0]))
            final, summary = (summaries, *final[1:]), summaries[:, -1]
        cells: Memory | ProjectedMemory | None = None
        if self.attention is not None:
            key = values if encoded.keys is None else encoded.keys
            cells = self.attention.prepare(key, values, source_mask(encoded.valid))
        state = RecurrentState(
            recurrent=self._copied(final) if self.bridge is None else self.bridge(final),
            reading=self._on_first_cell(encoded) if self.start_at_first else None,
            feed=values.new_zeros(values.shape[0], self.output.in_features) if self.feeds else None,
            covered=values.new_zeros(values.shape[:2]) if self.coverage is not None else None,
        )
        copied = None if self.copying is None else check_copied("RecurrentDecoder", encoded.copied, values)
        return RecurrentMemory(cells, summary, copied), state

    def _on_first_cell(self, encoded: EncoderOutput) -> Tensor | SampledState:
        """Return the state of the attention with weight 1 on the first cell; a source without cells has none."""
        weights = encoded.values.new_zeros(encoded.values.shape[:2])
        weights[:, :1] = encoded.valid[:, :1].to(weights.dtype)
        return SampledState(weights, None) if isinstance(self.attention, SampledAttention) else weights

    def read(self, tokens: Int[Tensor, "N P"], memory: RecurrentMemory) -> RecurrentState:
        """Return the state after N hypotheses have read P tokens each, at least 1, without a source."""
        if self.source_dim is not None:
            raise ConfigError("RecurrentDecoder: read is for decoders without a source. Use step.")
        check_ids("RecurrentDecoder", "tokens", tokens, "row", "time")
        _, recurrent = self.recurrence(self.dropout(self.embedding(tokens)))
        return RecurrentState(recurrent, None, None, None)

    def step(self, token: Int[Tensor, " N"], memory: RecurrentMemory, state: RecurrentState) -> DecoderStep:
        """Return the scores of what follows ``token`` in each of N hypotheses."""
        check_ids("RecurrentDecoder", "token", token, "row")
        embedded = self.dropout(self._embed(token))
        readout, weights, state = self._advance(embedded, memory, state)
        features = self.dropout(readout)
        logits = self.output(features)
        if self.copying is not None and weights is not None and memory.copied is not None:
            logits = self.copying.step(logits, features, weights, memory.copied)
        return DecoderStep(logits, state, weights)

    def _embed(self, tokens: Tensor) -> Tensor:
        embedded: Tensor = self.embedding(tokens if self.copying is None else self.copying.readable(tokens))
        return embedded

    def _zeros(self, rows: int) -> State:
        zeros = self.embedding.weight.new_zeros(rows, *self._state_sizes)
        return (zeros, zeros) if self.recurrence.is_lstm else (zeros,)

    @property
    def _state_sizes(self) -> tuple[int, int]:
        return self.recurrence.layers.num_layers, self.recurrence.layers.hidden_size

    def _copied(self, final: State) -> State:
        parts = 2 if self.recurrence.is_lstm else 1
        if len(final) != parts or any(part.shape[1:] != self._state_sizes for part in final):
            raise ShapeError(
                f"RecurrentDecoder: the source's summary has {len(final)} parts of (layers, size) "
                f"{tuple(final[0].shape[1:])}, expected {parts} of {self._state_sizes} to copy them. "
                "Build it with copy_state=False."
            )
        return final

    def _each_step(
        self, embedded: Tensor, memory: RecurrentMemory, state: RecurrentState
    ) -> tuple[Tensor, Weights | None]:
        """Compute the steps in order, where each needs the attention output of the previous one."""
        readouts, weights = [], []
        for word in embedded.unbind(dim=1):
            readout, read, state = self._advance(word, memory, state)
            readouts.append(readout)
            weights += [] if read is None else [read]
        return torch.stack(readouts, dim=1), stack_steps(weights) if weights else None

    def _all_steps(
        self, embedded: Tensor, memory: RecurrentMemory, state: RecurrentState
    ) -> tuple[Tensor, Weights | None]:
        """Compute all steps at once, where none needs the attention output of the previous one."""
        if memory.summary is not None:
            summary = memory.summary.unsqueeze(1).expand(-1, embedded.shape[1], -1)
            hidden, _ = self.recurrence(torch.cat([embedded, summary], dim=-1), state.recurrent)
            return self.readout(torch.cat([hidden, embedded, summary], dim=-1)), None
        hidden, _ = self.recurrence(embedded, state.recurrent)
        if self.attention is None or memory.cells is None:
            return self.readout(hidden), None
        context, weights, _ = self.attention.read(hidden, memory.cells, state.reading)  # type: ignore[arg-type]
        return self.readout(torch.cat([context, hidden], dim=-1)), weights

    def _advance(
        self, embedded: Float[Tensor, "N E"], memory: RecurrentMemory, state: RecurrentState
    ) -> tuple[Float[Tensor, "N R"], Weights | None, RecurrentState]:
        """Compute one step: the input of the output layer, the attention weights, and the next state."""
        if self.kind == "luong":
            state, hidden = self._recur(state, embedded, state.feed)
            context, weights, state = self._read(hidden, memory.cells, state)
            readout = self.readout(torch.cat([context, hidden], dim=-1))
            return readout, weights, state._replace(feed=readout if self.feeds else None)
        if self.kind == "bahdanau":
            context, weights, state = self._read(state.recurrent[0][:, -1], memory.cells, state)
            state, hidden = self._recur(state, embedded, context)
            return self.readout(torch.cat([hidden, embedded, context], dim=-1)), weights, state
        if self.gate is not None:
            before = state.recurrent[0][:, -1]
            context, weights, state = self._read(before, memory.cells, state)
            context = torch.sigmoid(self.gate(before)) * context
            state, hidden = self._recur(state, embedded, context)
            return self.readout(torch.cat([hidden, embedded, context], dim=-1)), weights, state
        if memory.summary is not None:
            sources = memory.summary.shape[0]
            each = hypotheses_each("RecurrentDecoder", embedded.shape[0], sources)
            summary = memory.summary.repeat_interleave(each, dim=0)
            state, hidden = self._recur(state, embedded, summary)
            return self.readout(torch.cat([hidden, embedded, summary], dim=-1)), None, state
        state, hidden = self._recur(state, embedded, None)
        return self.readout(hidden), None, state

    def _recur(self, state: RecurrentState, embedded: Tensor, extra: Tensor | None) -> tuple[RecurrentState, Tensor]:
        inputs = embedded if extra is None else torch.cat([embedded, extra], dim=-1)
        hidden, recurrent = self.recurrence(inputs.unsqueeze(1), state.recurrent)
        return state._replace(recurrent=recurrent), hidden.squeeze(1)

    def _read(
        self, query: Float[Tensor, "N D"], cells: Memory | ProjectedMemory | None, state: RecurrentState
    ) -> tuple[Float[Tensor, "N E"], Weights, RecurrentState]:
        if self.attention is None or cells is None:
            raise ConfigError("RecurrentDecoder: the memory has no cells to read. Pass what start() returned.")
        each = hypotheses_each("RecurrentDecoder", query.shape[0], cells.value.shape[0])
        if isinstance(cells, Memory):
            if self._remembers and each > 1:  # the hypotheses have different states: each needs its own row
                repeated = (None if part is None else part.repeat_interleave(each, dim=0) for part in cells)
                cells = Memory(*repeated)  # type: ignore[arg-type]
            if self.coverage is not None and state.covered is not None:
                cells = self.coverage(cells, state.covered)
        queries = as_queries("RecurrentDecoder", query, cells.value.shape[0])
        context, weights, reading = self.attention.read(queries, cells, state.reading)  # type: ignore[arg-type]
        weights = as_rows(weights)
        covered = state.covered
        if covered is not None:
            covered = covered + weights.dense().squeeze(1)
        return context.flatten(0, 1), weights, state._replace(reading=reading, covered=covered)

    @property
    def _remembers(self) -> bool:
        """Whether an attention step depends on the previous ones of the same hypothesis."""
        attention = self.attention
        return isinstance(attention, Attention) and (
            self.coverage is not None or isinstance(attention.focus, LocalM) or self._reads_by_weights
        )

    @property
    def _reads_by_weights(self) -> bool:
        """Whether the state of the attention is the weights of the previous step."""
        attention = self.attention
        return isinstance(attention, Attention) and (
            isinstance(attention.score, LocationAware) or isinstance(attention.focus, MedianWindow)
        )


def _batch(encoded: EncoderOutput | None) -> tuple[int | str]:
    return ("batch",) if encoded is None else (encoded.values.shape[0],)
