"""The recurrent decoder, in five variants that differ in how the decoder uses the source.

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
    Embeddings start uniform within ±0.1, as Luong's, or within another range.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from foci.checks import check_ids
from foci.errors import ConfigError, ShapeError, check_positive
from foci.layers.copying import CopyHead, CopyingDecoder
from foci.layers.coverage import Coverage
from foci.layers.dropout import Dropout
from foci.layers.embedding import uniform_table
from foci.layers.incremental.hypotheses import as_queries, as_rows, hypotheses_each, stack_steps
from foci.layers.interfaces import DecoderStep, EncoderOutput, check_encoded, source_mask
from foci.layers.recurrent import Bridge, DeepOutput, Maxout, Recurrence, State
from foci.layers.token_loss import Targets, TokenLogits, TokenLoss
from foci.mechanisms.attention import Attention
from foci.mechanisms.heads import MultiHeadAttention
from foci.mechanisms.heads.multi_head import ProjectedMemory
from foci.mechanisms.parts import Memory
from foci.models.attention import build_attention
from foci.models.options.attention import AttentionOptions
from foci.models.options.decoders import RecurrentDecoderOptions
from foci.models.options.seq2seq import check_attention
from foci.tracing import exportable
from foci.weights import Weights


@exportable
class RecurrentMemory(NamedTuple):
    """The sources as the steps use them, B rows.

    Attributes:
        source: the source as attention reads it; None without attention.
        summary: Cho's c, ``(B, E)``; None for the other variants.
        copied: what each position is as a target token, ``(B, S)``; None without copying.
    """

    source: Memory | ProjectedMemory | None
    summary: Tensor | None
    copied: Tensor | None = None


@exportable
class RecurrentState(NamedTuple):
    """The state of each hypothesis between two steps, N rows.

    Attributes:
        recurrent: the state of the recurrent layers.
        reading: the attention's state, a tree of tensors with N rows.
        feed: Luong's h̃, ``(N, R)``.
        covered: the sum of the weights so far over every position of the source, ``(N, S)``.
    """

    recurrent: State
    reading: Any
    feed: Tensor | None
    covered: Tensor | None


_Read = tuple[Tensor, Weights | None]
"""The inputs of the output layer, ``(B, T, R)``, and the attention weights."""
_Step = tuple[Tensor, Weights | None, RecurrentState]
"""The input of the output layer, ``(N, R)``, the attention weights, and the next state."""


class Sizes(NamedTuple):
    """The sizes of a decoder's parts; ``context`` is that of what attention reads."""

    embedding: int
    hidden: int
    readout: int
    source: int
    context: int


class RecurrentDecoder(CopyingDecoder):
    """An LSTM or GRU that predicts a target; a subclass for each variant says how it uses the source.

    `recurrent_decoder` builds the one that the options name.

    Args:
        vocabulary: number of target tokens; the embedding of token 0, padding, stays 0.
        source_dim: size of the source's positions and of its summary; None for a language model.
        options: sizes and options.
        attention: options of the attention to the source.
        module: an attention of your own, instead of one that the options describe.

    With ``normalize="sample"`` the attention is trained by REINFORCE: in training
    ``attentions["decoder.cross"].log_prob (B, T)`` is what `foci.functional.sample.reinforce` needs. With coverage,
    `foci.layers.coverage.coverage_loss` computes the loss of ``attentions["decoder.cross"]``.
    """

    max_length: int | None = None  # a recurrence has no longest target
    attends: ClassVar[bool] = True

    def __init__(
        self,
        vocabulary: int,
        source_dim: int | None,
        options: RecurrentDecoderOptions,
        attention: AttentionOptions | None = None,
        module: Attention | MultiHeadAttention | None = None,
    ) -> None:
        super().__init__()
        check_positive("RecurrentDecoder", vocabulary=vocabulary, source_dim=source_dim)
        attention = AttentionOptions() if attention is None else attention
        check_attention(options, attention)
        heads = self.attends and (isinstance(module, MultiHeadAttention) or attention.num_heads is not None)
        sizes = Sizes(
            options.embedding_dim,
            options.hidden_dim,
            options.readout_dim or self._default_readout(options),
            source_dim or 0,
            options.hidden_dim if heads else source_dim or 0,
        )
        layers: dict[str, Any] = {"cell": options.cell, "num_layers": options.num_layers}
        self.source_dim = source_dim
        self.feeds = False
        self.dropout = Dropout(options.dropout)
        self.embedding = uniform_table(vocabulary, options.embedding_dim, bound=options.embedding_init_range, padding=0)
        copies = source_dim is None or options.copy_state
        self.bridge = None if copies else Bridge(sizes.source, options.hidden_dim, **layers)
        fed = self._build_inputs(sizes, options)
        self.recurrence = Recurrence(options.embedding_dim + fed, options.hidden_dim, dropout=options.dropout, **layers)
        self.readout = self._build_readout(sizes)
        self.content, self.aligned = attention.content, attention.initial_alignment == "first"
        self.attention: Attention | MultiHeadAttention | None = None
        self.coverage: Coverage | None = None
        if self.attends:
            self.attention = module or build_attention(sizes.hidden, sizes.source, attention)
        if options.coverage:
            self.coverage = Coverage(self._key_dim or sizes.source)
        self.output = nn.Linear(sizes.readout, vocabulary)
        if options.tie_output:
            self.output.weight = self.embedding.weight
        self.copying = CopyHead(sizes.readout, vocabulary) if options.copy else None

    @staticmethod
    def _default_readout(options: RecurrentDecoderOptions) -> int:
        return options.embedding_dim if options.tie_output else options.hidden_dim

    def _build_inputs(self, sizes: Sizes, options: RecurrentDecoderOptions) -> int:
        """Build what makes further inputs of the recurrence; return their size."""
        return sizes.context

    def _build_readout(self, sizes: Sizes) -> nn.Module:
        """Return the layer between the state and the output layer."""
        return Maxout(sizes.hidden + sizes.embedding + sizes.context, sizes.readout)

    @property
    def _key_dim(self) -> int | None:
        """The size of a projected key; None where it is that of the source."""
        if not isinstance(self.attention, Attention):
            raise ConfigError("RecurrentDecoder: coverage is True without an attention of one head, expected one.")
        return self.attention.score.projected_dim

    def forward(
        self, encoded: EncoderOutput | None, target: Int[Tensor, "B T"], targets: Targets | None = None
    ) -> TokenLogits | TokenLoss:
        """Predict by teacher forcing: ``logits[:, t]`` predict ``target[:, t + 1]``; the loss with ``targets``."""
        check_ids("RecurrentDecoder", "target", target, "batch" if encoded is None else len(encoded.values), "time")
        memory, state = self.start(encoded, target.shape[0])
        embedded = self.dropout(self.embedding(self._readable(target)))
        weights: Weights | None = None
        if target.shape[1] == 0:
            readout = embedded.new_zeros(*target.shape, self.output.in_features)
            if self.attention is not None:
                query = embedded.new_zeros(*target.shape, self.recurrence.layers.hidden_size)
                weights = self.attention.read(query, memory.source).weights  # type: ignore[arg-type]
        elif self._parallel:
            readout, weights = self._all_steps(embedded, memory, state)
        else:
            readout, weights = self._each_step(embedded, memory, state)
        attentions = {} if weights is None else {"decoder.cross": weights}
        return self._predict(self.dropout(readout), attentions, targets, weights, memory.copied)

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
        final, summary = self._summarize(final)
        source: Memory | ProjectedMemory | None = None
        if self.attention is not None:
            key = values if encoded.keys is None else encoded.keys
            key = key if self.content else torch.zeros_like(values)
            source = self.attention.prepare(key, values, source_mask(encoded.valid))
        state = RecurrentState(
            recurrent=self._as_state(final) if self.bridge is None else self.bridge(final),
            reading=self._on_first_position(encoded) if self.aligned else None,
            feed=values.new_zeros(values.shape[0], self.output.in_features) if self.feeds else None,
            covered=values.new_zeros(values.shape[:2]) if self.coverage is not None else None,
        )
        return RecurrentMemory(source, summary, self._copied("RecurrentDecoder", encoded)), state

    def _summarize(self, final: State) -> tuple[State, Tensor | None]:
        """Return what the first state is made of, and Cho's summary."""
        return final, None

    def _on_first_position(self, encoded: EncoderOutput) -> Any:
        """Return the state of the attention with weight 1 on the first position, if the source has one."""
        weights = encoded.values.new_zeros(encoded.values.shape[:2])
        weights[:, :1] = encoded.valid[:, :1].to(weights.dtype)
        return None if self.attention is None else self.attention.state_from_weights(weights)  # type: ignore[operator]

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
        embedded = self.dropout(self.embedding(self._readable(token)))
        readout, weights, state = self._advance(embedded, memory, state)
        features = self.dropout(readout)
        return DecoderStep(self._mixed(self.output(features), features, weights, memory.copied), state, weights)

    def _zeros(self, rows: int) -> State:
        zeros = self.embedding.weight.new_zeros(rows, *self._state_sizes)
        return (zeros, zeros) if self.recurrence.is_lstm else (zeros,)

    @property
    def _state_sizes(self) -> tuple[int, int]:
        return self.recurrence.layers.num_layers, self.recurrence.layers.hidden_size

    def _as_state(self, final: State) -> State:
        parts = 2 if self.recurrence.is_lstm else 1
        if len(final) != parts or any(part.shape[1:] != self._state_sizes for part in final):
            raise ShapeError(
                f"RecurrentDecoder: the source's summary has {len(final)} parts of (layers, size) "
                f"{tuple(final[0].shape[1:])}, expected {parts} of {self._state_sizes} to copy them. "
                "Build it with copy_state=False."
            )
        return final

    @property
    def _parallel(self) -> bool:
        """Whether no step needs the attention output of the previous one, so that all are computed at once."""
        return False

    def _all_steps(self, embedded: Tensor, memory: RecurrentMemory, state: RecurrentState) -> _Read:
        """Compute all steps at once; for variants and options that are ``_parallel``."""
        raise NotImplementedError

    def _advance(self, embedded: Tensor, memory: RecurrentMemory, state: RecurrentState) -> _Step:
        """Compute one step from embedded tokens ``(N, E)``."""
        raise NotImplementedError

    def _each_step(self, embedded: Tensor, memory: RecurrentMemory, state: RecurrentState) -> _Read:
        """Compute the steps in order, where each needs the attention output of the previous one."""
        readouts, weights = [], []
        for word in embedded.unbind(dim=1):
            readout, read, state = self._advance(word, memory, state)
            readouts.append(readout)
            weights += [] if read is None else [read]
        return torch.stack(readouts, dim=1), stack_steps(weights) if weights else None

    def _recur(self, state: RecurrentState, embedded: Tensor, fed: Tensor | None) -> tuple[RecurrentState, Tensor]:
        inputs = embedded if fed is None else torch.cat([embedded, fed], dim=-1)
        hidden, recurrent = self.recurrence(inputs.unsqueeze(1), state.recurrent)
        return state._replace(recurrent=recurrent), hidden.squeeze(1)

    def _read(
        self, query: Float[Tensor, "N D"], source: Memory | ProjectedMemory | None, state: RecurrentState
    ) -> tuple[Float[Tensor, "N E"], Weights, RecurrentState]:
        attention = self.attention
        if attention is None or source is None:
            raise ConfigError("RecurrentDecoder: the memory has no source to read. Pass what start() returned.")
        each = hypotheses_each("RecurrentDecoder", query.shape[0], source.value.shape[0])
        if each > 1 and (attention.remembers or self.coverage is not None):
            # The hypotheses have different states: each needs a row of its own.
            repeated = (None if part is None else part.repeat_interleave(each, dim=0) for part in source)
            source = type(source)(*repeated)  # type: ignore[arg-type]
        if self.coverage is not None and state.covered is not None:
            source = self.coverage(source, state.covered)
        queries = as_queries("RecurrentDecoder", query, source.value.shape[0])
        context, weights, reading = attention.read(queries, source, state.reading)  # type: ignore[arg-type]
        weights = as_rows(weights)
        covered = state.covered
        if covered is not None:
            covered = covered + weights.dense().squeeze(1)
        return context.flatten(0, 1), weights, state._replace(reading=reading, covered=covered)


class SutskeverDecoder(RecurrentDecoder):
    """Starts from the source's summary and does not see it again; without a source, a language model."""

    attends = False

    def _build_inputs(self, sizes: Sizes, options: RecurrentDecoderOptions) -> int:
        return 0

    def _build_readout(self, sizes: Sizes) -> nn.Module:
        same = sizes.readout == sizes.hidden
        return nn.Identity() if same else nn.Linear(sizes.hidden, sizes.readout, bias=False)

    @property
    def _parallel(self) -> bool:
        return True

    def _all_steps(self, embedded: Tensor, memory: RecurrentMemory, state: RecurrentState) -> _Read:
        hidden, _ = self.recurrence(embedded, state.recurrent)
        return self.readout(hidden), None

    def _advance(self, embedded: Tensor, memory: RecurrentMemory, state: RecurrentState) -> _Step:
        state, hidden = self._recur(state, embedded, None)
        return self.readout(hidden), None, state


class ChoDecoder(RecurrentDecoder):
    """Sees the source's summary at every step, in its gates and in its output."""

    attends = False

    def _build_inputs(self, sizes: Sizes, options: RecurrentDecoderOptions) -> int:
        self.summary = nn.Linear(sizes.source, sizes.source)
        return super()._build_inputs(sizes, options)

    def _summarize(self, final: State) -> tuple[State, Tensor | None]:
        summaries = torch.tanh(self.summary(final[0]))
        return (summaries, *final[1:]), summaries[:, -1]

    @property
    def _parallel(self) -> bool:
        return True

    def _all_steps(self, embedded: Tensor, memory: RecurrentMemory, state: RecurrentState) -> _Read:
        summary = _summary(memory).unsqueeze(1).expand(-1, embedded.shape[1], -1)
        hidden, _ = self.recurrence(torch.cat([embedded, summary], dim=-1), state.recurrent)
        return self.readout(torch.cat([hidden, embedded, summary], dim=-1)), None

    def _advance(self, embedded: Tensor, memory: RecurrentMemory, state: RecurrentState) -> _Step:
        summaries = _summary(memory)
        each = hypotheses_each("RecurrentDecoder", embedded.shape[0], summaries.shape[0])
        summary = summaries.repeat_interleave(each, dim=0)
        state, hidden = self._recur(state, embedded, summary)
        return self.readout(torch.cat([hidden, embedded, summary], dim=-1)), None, state


class BahdanauDecoder(RecurrentDecoder):
    """Attends before the recurrent step, which sees what was read."""

    def _advance(self, embedded: Tensor, memory: RecurrentMemory, state: RecurrentState) -> _Step:
        before = state.recurrent[0][:, -1]
        context, weights, state = self._read(before, memory.source, state)
        context = self._gated(context, before)
        state, hidden = self._recur(state, embedded, context)
        return self.readout(torch.cat([hidden, embedded, context], dim=-1)), weights, state

    def _gated(self, context: Tensor, before: Tensor) -> Tensor:
        return context


class XuDecoder(BahdanauDecoder):
    """Attends before the recurrent step, with a gate on what was read, and adds the embedding to the readout."""

    @staticmethod
    def _default_readout(options: RecurrentDecoderOptions) -> int:
        return options.embedding_dim

    def _build_readout(self, sizes: Sizes) -> nn.Module:
        readout = DeepOutput(sizes.hidden, sizes.embedding, sizes.context)
        self.gate = nn.Linear(sizes.hidden, 1)
        return readout

    def _gated(self, context: Tensor, before: Tensor) -> Tensor:
        return torch.sigmoid(self.gate(before)) * context


class LuongDecoder(RecurrentDecoder):
    """Attends after the recurrent step; with input feeding, the next step sees the result."""

    def _build_inputs(self, sizes: Sizes, options: RecurrentDecoderOptions) -> int:
        self.feeds = options.input_feeding
        return sizes.readout if self.feeds else 0

    def _build_readout(self, sizes: Sizes) -> nn.Module:
        return nn.Sequential(nn.Linear(sizes.context + sizes.hidden, sizes.readout, bias=False), nn.Tanh())

    @property
    def _parallel(self) -> bool:
        return not self.feeds and self.coverage is None

    def _all_steps(self, embedded: Tensor, memory: RecurrentMemory, state: RecurrentState) -> _Read:
        hidden, _ = self.recurrence(embedded, state.recurrent)
        context, weights, _ = self.attention.read(hidden, memory.source, state.reading)  # type: ignore[union-attr, arg-type]
        return self.readout(torch.cat([context, hidden], dim=-1)), weights

    def _advance(self, embedded: Tensor, memory: RecurrentMemory, state: RecurrentState) -> _Step:
        state, hidden = self._recur(state, embedded, state.feed)
        context, weights, state = self._read(hidden, memory.source, state)
        readout = self.readout(torch.cat([context, hidden], dim=-1))
        return readout, weights, state._replace(feed=readout if self.feeds else None)


VARIANTS: dict[str, type[RecurrentDecoder]] = {
    "sutskever": SutskeverDecoder,
    "cho": ChoDecoder,
    "bahdanau": BahdanauDecoder,
    "luong": LuongDecoder,
    "xu": XuDecoder,
}


def recurrent_decoder(
    vocabulary: int,
    source_dim: int | None,
    options: RecurrentDecoderOptions,
    attention: AttentionOptions | None = None,
    module: Attention | MultiHeadAttention | None = None,
) -> RecurrentDecoder:
    """Return the decoder of the variant that the options name; the arguments are those of `RecurrentDecoder`.

    Example:
        >>> import torch
        >>> decoder = recurrent_decoder(13, 4, RecurrentDecoderOptions(embedding_dim=3, hidden_dim=6))
        >>> regions = EncoderOutput(torch.zeros(2, 5, 4), torch.ones(2, 5, dtype=torch.bool))
        >>> predicted = decoder(regions, torch.ones(2, 7, dtype=torch.long))
        >>> predicted.logits.shape, predicted.attentions["decoder.cross"].shape
        (torch.Size([2, 7, 13]), torch.Size([2, 7, 5]))
    """
    variant = options.variant or ("sutskever" if source_dim is None else "luong")
    if source_dim is None and variant != "sutskever":
        raise ConfigError(
            f"RecurrentDecoder: variant is {variant!r} and source_dim is None, expected the size of the source. "
            "Use variant='sutskever' without a source."
        )
    return VARIANTS[variant](vocabulary, source_dim, options, attention, module)


def _summary(memory: RecurrentMemory) -> Tensor:
    if memory.summary is None:
        raise ConfigError("RecurrentDecoder: the memory has no summary of the source. Pass what start() returned.")
    return memory.summary
