"""The base of tasks that search an output sequence: translations, summaries, captions.

It owns the loss over tokens, validation by nats and perplexity, predictions by a search with n-best lists, and traces.
By default inputs are texts; a task supplies how examples are encoded and read, and what else its loss has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, cast
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor, nn

from foci.data import BOS, EOS, PAD, UNK, Sequences, TokenBatches, Tokenizer
from foci.data.batching import on_device
from foci.data.copy_ids import CopyIds, SourceRow, padded_sources
from foci.data.text_size import text_size
from foci.decoding import DecoderInputs, GenerationConstraints, Hypothesis, Sampler, beam, encode_source, greedy, sample
from foci.errors import ConfigError, DataError
from foci.layers.copying import CopySource, copying_head
from foci.layers.incremental.quantized_linear import quantize
from foci.layers.interfaces import StepDecoder
from foci.layers.token_loss import Targets, TokenLogits, TokenLoss
from foci.metrics.likelihood import Likelihood, TextSize
from foci.models.encoder_decoder import EncoderDecoder
from foci.probing.subject import Source
from foci.scripts import begins_spaceless, lowered
from foci.tasks.frame.file_task import FileTask
from foci.tasks.frame.prediction_loop import by_length, predict_in_batches
from foci.tasks.frame.probing.traces import TracedPass, text_sources
from foci.tasks.frame.search_options import SearchOptions
from foci.tasks.frame.task import Prediction, Progress, Record
from foci.viz.axis import Axis, Mark
from foci.viz.trace import COPIED, P_GEN, Trace
from foci.weights import Weights

LENGTH_PENALTY = 0.6
"""Of the search, where none is given and none was fitted."""
_AXES = {"encoder": ("source", "source"), "self": ("target", "input"), "cross": ("target", "source")}
"""The axes (target, source) of the encoder's attentions, and of the decoder's by the last word of their name."""


class Seq2SeqTask(FileTask):
    """A task that searches an output sequence; by default the input is the text of the field ``source``."""

    produces: ClassVar[str]
    """What an output is called in messages."""
    answer_axis: ClassVar[str] = "target"
    """The axis of a trace that has the tokens of an output."""
    allows_unknown: ClassVar[bool] = False
    """Whether ``<unk>`` may be produced."""
    score: ClassVar[Literal["probability", "log-probability"]] = "log-probability"
    unit: ClassVar[str] = "tokens"
    metrics: ClassVar[Mapping[str, Literal["lower", "higher"]]] = {"loss": "lower", "perplexity": "lower"}

    # ---- what a task supplies

    def tokenizers(self, assets: Any) -> tuple[Tokenizer, Tokenizer]:
        """Return the tokenizers of sources and targets."""
        return assets.tokenizer, assets.tokenizer

    def plain(self, text: str) -> str:
        """Return a text as it is tokenized: single spaces, and a space before the first word as before all others.

        So a word has one id, wherever it is; scripts without spaces have none before the first word either.
        """
        joined = " ".join(text.split())
        if self.config.tokenizer.lowercase:
            joined = lowered(joined)
        return joined if begins_spaceless(joined) else f" {joined}"

    def decode(self, assets: Any, sources: Any, number: int, tokens: Sequence[int]) -> str:
        """Return the text of tokens that were produced for an input."""
        return self.tokenizers(assets)[1].decode(tokens, sources[number].own).strip()

    def limited(self, options: Any) -> Any:
        """Return the options with the greatest length of an output, if the run has one."""
        return options

    def encode_sources(self, assets: Any, records: Sequence[Record]) -> Any:
        """Return the inputs of a prediction as a search takes them."""
        return self.source_rows(assets, [record["source"] for record in records])

    def unusable(self, sources: Any) -> Mapping[int, str]:
        """Return why nothing can be predicted for some of the inputs, by their numbers."""
        return {}

    def together(self, sources: Any, options: Any) -> Iterable[Sequence[int]]:
        """Yield the numbers of inputs that are searched together."""
        return by_length([len(row.ids) for row in sources], options.batch_tokens)

    def search(
        self, model: nn.Module, sources: Any, numbers: Sequence[int], options: Any, prefix: list[int] | None = None
    ) -> Iterable[list[Hypothesis]]:
        """Return the hypotheses of these inputs, best first. A model that copies never produces ``<unk>``."""
        source, valid = padded(model, [sources[number] for number in numbers])
        decoder = cast("EncoderDecoder", model)
        unknown = self.allows_unknown and not isinstance(source, CopySource)
        return search_from(decoder, encode_source(decoder, source, valid), options, prefix, unknown=unknown)

    def notes(self, assets: Any, record: Record, sources: Any, number: int) -> list[str]:
        """Return messages about an input: what was not read, what is not known."""
        return []

    def trace(
        self, model: nn.Module, assets: Any, sources: Any, number: int, hypothesis: Hypothesis, text: str
    ) -> Trace:
        """Return the attention weights of each produced token."""
        return text_trace(model, *self.tokenizers(assets), sources[number], hypothesis, text)

    # ---- loss and metrics

    def learn(self, model: nn.Module, batch: Any, smoothing: float = 0.0) -> TokenLoss:
        """Return the cross-entropy of a batch, and what else the model gives for it."""
        targets = Targets(batch.target[:, 1:], smoothing, PAD)
        learned: TokenLoss = model(batch.source, batch.source_valid, batch.target[:, :-1], targets)
        return learned

    def nats(self, model: nn.Module, batches: TokenBatches[Any]) -> dict[str, float]:
        """Return nats per token, without label smoothing, and their exponential."""
        found = self._likelihood(model, batches, TextSize(0, 0))
        return {"loss": found.nats, "perplexity": found.perplexity}

    def likelihood(
        self, model: nn.Module, assets: Any, batches: TokenBatches[Any], texts: Iterable[str], targets: Sequences
    ) -> Likelihood:
        """Return how likely target texts are, without label smoothing.

        Args:
            model: the trained model.
            assets: of the run.
            batches: of the targets, with what they were made from.
            texts: the target texts, as they were tokenized.
            targets: the ids of each, without BOS and EOS, as they are in the batches.
        """
        rows = (targets[number] for number in range(len(targets)))
        return self._likelihood(model, batches, text_size(self.tokenizers(assets)[1], texts, rows))

    def _likelihood(self, model: nn.Module, batches: TokenBatches[Any], size: TextSize) -> Likelihood:
        total, count = 0.0, 0
        device = next(model.parameters()).device
        for batch in batches.epoch(0):
            total += float(self.learn(model, on_device(batch, device)).loss)
            count += int(batch.target_valid[:, 1:].sum())
        return Likelihood(-total, count, size)

    # ---- predictions

    def empty_details(self, assets: Any) -> dict[str, Any]:
        """Return the names alone."""
        return {"log_prob": None, "finished": None}

    @property
    def copies(self) -> bool:
        """Whether the model copies words of its source."""
        return bool(self.config.model.decoder.copy)

    def source_rows(self, assets: Any, texts: Iterable[str], longest: int | None = None) -> list[SourceRow]:
        """Return the ids of the first ``longest`` tokens of sources, with extended ones for a model that copies."""
        source, target = self.tokenizers(assets)
        texts = map(self.plain, texts)
        if self.copies:
            return list(CopyIds(source, target).sources(texts, longest))
        return [
            SourceRow(ids[:longest], [], [], 0 if longest is None else max(0, len(ids) - longest))
            for ids in source.encode_many(texts)
        ]

    def predict(
        self, model: nn.Module, assets: Any, records: Sequence[Record], options: Any, trace: bool, progress: Progress
    ) -> list[Prediction]:
        """Search the outputs; a trace has the weights of every attention for every produced token."""
        return self.predict_from(model, assets, self.encode_sources(assets, records), records, options, trace, progress)

    def predict_from(
        self,
        model: nn.Module,
        assets: Any,
        sources: Any,
        records: Sequence[Record],
        options: Any,
        trace: bool,
        progress: Progress,
    ) -> list[Prediction]:
        """Search the outputs of encoded inputs."""
        model = quantized(model) if options.int8 else model
        options, target = self.limited(options), self.tokenizers(assets)[1]
        prefix = (
            None
            if options.prefix is None
            else target.encode(self.plain(self.normal({"prefix": options.prefix})["prefix"])).ids
        )

        def answer(numbers: Sequence[int]) -> Iterator[Prediction]:
            for number, hypotheses in zip(numbers, self.search(model, sources, numbers, options, prefix)):
                made = [self._prediction(model, assets, records, sources, number, one, trace) for one in hypotheses]
                yield replace(made[0], alternatives=tuple(made[1:]))

        batches = self.together(sources, options)
        return predict_in_batches(records, batches, answer, progress, unusable=self.unusable(sources))

    def _prediction(
        self,
        model: nn.Module,
        assets: Any,
        records: Sequence[Record],
        sources: Any,
        number: int,
        hypothesis: Hypothesis,
        trace: bool,
    ) -> Prediction:
        text = self.decode(assets, sources, number, hypothesis.tokens)
        details: dict[str, Any] = {"log_prob": hypothesis.log_prob, "finished": hypothesis.finished}
        notes = [] if hypothesis.finished else [f"the {self.produces} was truncated at max_length"]
        if notes := [*notes, *self.notes(assets, records[number], sources, number)]:
            details["notes"] = notes
        traced = self.trace(model, assets, sources, number, hypothesis, text) if trace else None
        return Prediction(records[number], text, hypothesis.score, details, traced)

    def traced_pass(self, model: nn.Module, assets: Any, record: Record) -> TracedPass:
        """Return how the model reads an input; the answer is the best hypothesis, token by token."""
        sources, options = self.encode_sources(assets, [record]), self.limited(self.Options())
        if unusable := self.unusable(sources):
            raise DataError(f"probe: {unusable[0]}")
        hypothesis = next(iter(self.search(model, sources, [0], options)))[0]
        if not hypothesis.tokens:
            raise ConfigError("probe: the model answers nothing. Probe another input.")
        text = self.decode(assets, sources, 0, hypothesis.tokens)
        trace = self.trace(model, assets, sources, 0, hypothesis, text)
        inputs, erased = self.erasable(model, sources, trace, record)
        device = next(model.parameters()).device
        read = torch.tensor([_read_by_decoder(_produced(hypothesis))], dtype=torch.long, device=device)

        def probabilities(output: Any) -> Tensor:
            return cast("Tensor", output.logits.float().softmax(dim=-1))

        return TracedPass((*inputs, read), erased, trace, probabilities, answer=self.answer_axis)

    def erasable(
        self, model: nn.Module, sources: Any, trace: Trace, record: Record
    ) -> tuple[tuple[Any, Any], Mapping[str, Source]]:
        """Return the first of some sources as the model takes it, and what of it can be erased, by the trace's axis."""
        given, valid = padded(model, [sources[0]])
        if isinstance(given, CopySource):
            raise ConfigError("probe: the model copies words of its source. Probe another input.")
        return (given, valid), text_sources(trace, {"source": 0})


# ---- the search


def search_from(
    decoder: StepDecoder, start: DecoderInputs, options: SearchOptions, prefix: list[int] | None, *, unknown: bool
) -> list[list[Hypothesis]]:
    """Return the hypotheses of each row of a start, best first; ``unknown`` allows ``<unk>``."""
    constraints = GenerationConstraints(
        max_length=options.max_length,
        min_length=options.min_length,
        no_repeat_ngram=options.no_repeat_ngram,
        prefix=None if prefix is None else [prefix] * start.rows,
        bos=BOS,
        eos=EOS,
        banned=(PAD, BOS) if unknown else (PAD, BOS, UNK),
    )
    if options.temperature is not None:
        return sample(
            decoder,
            start,
            Sampler(temperature=options.temperature, top_k=options.top_k, top_p=options.top_p),
            samples=options.n_best,
            generator=torch.Generator(start.device).manual_seed(options.seed),
            constraints=constraints,
        )
    if options.beam_size == 1:
        return greedy(decoder, start, constraints=constraints)
    return beam(
        decoder,
        start,
        size=options.beam_size,
        n_best=options.n_best,
        length_penalty=LENGTH_PENALTY if options.length_penalty is None else options.length_penalty,
        coverage_penalty=options.coverage_penalty,
        constraints=constraints,
    )


_QUANTIZED: WeakKeyDictionary[nn.Module, nn.Module] = WeakKeyDictionary()


def quantized(model: nn.Module) -> nn.Module:
    """Return the model with large linear layers in 8-bit integers, made once."""
    if model not in _QUANTIZED:
        _QUANTIZED[model] = quantize(model).eval()
    return _QUANTIZED[model]


# ---- sources and traces


def padded(model: nn.Module, rows: Sequence[SourceRow]) -> tuple[Tensor | CopySource, Bool[Tensor, "B S"]]:
    """Return sources as one batch on the model's device, and which positions are not padding."""
    device = next(model.parameters()).device
    if any(row.extended for row in rows):
        return padded_sources(rows, device)
    width = max(1, *(len(row.ids) for row in rows))
    highest = 1 + max((max(row.ids, default=0) for row in rows), default=0)
    source, valid = Sequences((row.ids for row in rows), highest).padded(np.arange(len(rows)), width)
    return torch.from_numpy(source).to(device), torch.from_numpy(valid).to(device)


def text_trace(
    model: nn.Module, source: Tokenizer, target: Tokenizer, row: SourceRow, hypothesis: Hypothesis, text: str
) -> Trace:
    """Return the attention weights of each generated token, by teacher forcing, which equals those of the search."""
    given, valid = padded(model, [row])
    produced = _produced(hypothesis)
    read = _read_by_decoder(produced)
    predicted: TokenLogits = model(given, valid, torch.tensor([read], dtype=torch.long, device=valid.device))
    # Self-attention covers the decoder's input, which is one token behind its output.
    inputs = ["<bos>", *target.labels(produced[:-1], row.own)] if produced else []
    axes = {
        "source": Axis("tokens", tuple(_source_labels(source, target, row)), "source"),
        "target": Axis("tokens", tuple(target.labels(produced, row.own)), "target"),
        "input": Axis("tokens", tuple(inputs), "target so far"),
    }
    attentions = dict(predicted.attentions)
    axes_of = {name: _AXES["encoder" if name.startswith("encoder.") else name.split(".")[-1]] for name in attentions}
    if isinstance(given, CopySource) and predicted.generates is not None:
        attentions[COPIED] = Weights.from_tensor(_copied(predicted, given, produced))
        axes_of[COPIED] = ("target", "source")
        p_gen = predicted.generates[0].tolist()
        marks = tuple(Mark(place, place, P_GEN, min(share, 1.0)) for place, share in enumerate(p_gen))
        axes["target"] = replace(axes["target"], marks=marks)
    return Trace.from_handles(
        attentions,
        axes,
        axes_of=axes_of,
        text=text,
        derived=(COPIED,),
        metadata={"score": hypothesis.score, "log-probability": hypothesis.log_prob},
    )


def _produced(hypothesis: Hypothesis) -> list[int]:
    return [*hypothesis.tokens, EOS] if hypothesis.finished else [*hypothesis.tokens]


def _read_by_decoder(produced: Sequence[int]) -> list[int]:
    """Return the decoder's input: one token behind its output."""
    return [BOS, *produced[:-1]] if produced else []


def _copied(predicted: TokenLogits, source: CopySource, produced: Sequence[int]) -> Tensor:
    """Return where each produced token was copied from, ``(1, T, S)``: rows that sum to 1, or 0 of generated tokens.

    A token counts as copied if more of its probability comes from copying than from generating.
    """
    crossing = [weights for name, weights in predicted.attentions.items() if name.endswith("cross")]
    tokens = torch.tensor(produced, device=source.extended.device)
    read = copying_head(crossing[-1]).dense()[0] * (source.extended == tokens.unsqueeze(1))
    mass = read.sum(dim=1, keepdim=True)
    total = predicted.logits[0].gather(1, tokens.unsqueeze(1)).exp()
    generates = 1.0 if predicted.generates is None else predicted.generates[0].unsqueeze(1)
    copied = (1 - generates) * mass > total / 2
    return torch.where(copied, read / mass.clamp_min(torch.finfo(mass.dtype).tiny), 0.0).unsqueeze(0)


def _source_labels(source: Tokenizer, target: Tokenizer, row: SourceRow) -> list[str]:
    """Return a label per source token; a word outside the vocabulary is labeled with its own text."""
    labels = source.labels(row.ids)
    for place, number in enumerate(row.extended):
        if number >= len(target):
            labels[place] = target.labels([number], row.own)[0]
    return labels
