"""Text generation: a language model trained on plain text; each produced token shows what it read of its past."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, cast

import numpy as np
import torch
from annotated_types import Ge, Gt, Le, Lt
from numpy.typing import NDArray
from torch import Tensor, nn

from foci.data import BOS, EOS, PAD, UNK, StreamBatches, Tokeniser
from foci.data.plain_text import Piece, Text, TextFiles, hold_out, python_reference
from foci.data.windows import Ids, TextBatch, WindowBatches, WindowExamples, chunks, encode_documents, encode_text
from foci.decoding import Hypothesis, Limits, Sampler, SlidingContext, beam, follow, following, windows
from foci.errors import ConfigError, DataError
from foci.layers.token_loss import Targets, TokenLogits, TokenLoss
from foci.metrics.likelihood import Likelihood
from foci.models import language_model
from foci.models.language_model import LanguageModel
from foci.printable import printable
from foci.results import Weights
from foci.tasks.config import FilePath, ModelChoice, Texts
from foci.tasks.task import Evaluation, Field, Log, Prediction, Progress, Record, Shard, Splits, Task
from foci.training import Batches, Loss, TrainingOptions
from foci.viz.trace import Cells, Trace

_TOKENS_AT_ONCE = 8192
"""Tokens that are scored at a time."""


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """The text: a file, a folder of files, or JSONL; without any, the Python language reference."""

    path: FilePath | None = None
    """A text file, a .jsonl file, or a folder of either (also .gz, .xz). Without data, the language reference that
    comes with Python is used."""
    field: str = "text"
    """The field of a JSONL file that holds the text; each line is a document."""
    pattern: str = "*"
    """Which files of a folder are read, such as *.txt."""
    valid: FilePath | None = None
    """Held-out text in the same form, which decides which checkpoint is the best one."""
    valid_share: Annotated[float, Gt(0), Lt(1)] = 0.1
    """Without such a file: the share of the characters that is held out, at the end of the text; of several documents
    the last ones."""
    max_valid_characters: Annotated[int, Ge(1)] = 1_000_000
    """Characters that are held out at most."""
    max_characters: Annotated[int, Ge(1)] | None = None
    """Characters that are read of each document; all unless given."""
    context: Annotated[int, Ge(2), Le(1_000_000)] = 128
    """Tokens that the model reads at most before it predicts the next one."""
    batch_size: Annotated[int, Ge(1)] = 16
    """Windows of that many tokens per step, over all processes."""
    stream: bool = False
    """For text larger than memory: read it from disk in every epoch, one buffer at a time."""
    stream_buffer: Annotated[int, Ge(1)] = 256
    """Pieces of about 64 kB of a stream that are held and shuffled at a time."""
    workers: Annotated[int, Ge(0)] = 0
    """Processes that prepare the batches of a stream ahead of time."""


@dataclass(frozen=True, kw_only=True)
class TokeniserConfig:
    """How text is split: learned from the training text and kept in the run."""

    kind: Literal["characters", "bpe", "unigram", "bytes", "words"] = "characters"
    """bpe and unigram learn subwords; they and bytes spell every text, characters and words only what was seen."""
    size: Annotated[int, Ge(5), Le(1_000_000)] = 8000
    """Largest size of the vocabulary."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig(ModelChoice):
    """Which model."""

    models = {  # noqa: RUF012 (a ClassVar, as the base has it)
        "transformer": (language_model.TransformerLanguageModel, language_model.PRESETS),
        "lstm": (language_model.RecurrentLanguageModel, language_model.RECURRENT_PRESETS),
        "history": (language_model.HistoryLanguageModel, language_model.HISTORY_PRESETS),
    }

    kind: str = "transformer"
    """Kind of model; history is an LSTM with attention over its own past."""
    preset: str = "tiny"
    """The sizes of the model by name."""


@dataclass(frozen=True, kw_only=True)
class GenerateConfig:
    """All settings of a training."""

    data: DataConfig = field(default_factory=DataConfig)
    tokeniser: TokeniserConfig = field(default_factory=TokeniserConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    training: TrainingOptions = field(
        default_factory=lambda: TrainingOptions(
            max_steps=2000,
            optimiser="muon",
            learning_rate=4e-3,
            betas=(0.9, 0.98),
            schedule="linear",
            warmup=50,
            valid_every=500,
        )
    )


@dataclass(frozen=True, kw_only=True)
class ContextOptions:
    """How much of the past each token is predicted from."""

    context: Annotated[int, Ge(2)] | None = None
    """Tokens that are read at most before the next one is predicted; those of the training unless given."""
    stride: Annotated[int, Ge(1)] | None = None
    """Where the text is longer than the context: how far apart windows begin. Fewer are exacter and slower; half the
    context unless given."""

    def sizes(self, trained: int) -> tuple[int, int]:
        """Return context and stride of a model that was trained with a context of this size."""
        context = trained if self.context is None else self.context
        return context, max(1, context // 2) if self.stride is None else self.stride


@dataclass(frozen=True, kw_only=True)
class GenerateOptions(ContextOptions):
    """How text is generated."""

    max_tokens: Annotated[int, Ge(1)] = 200
    """Tokens that are produced at most."""
    temperature: Annotated[float, Ge(0)] = 0.8
    """1 draws from the model's distribution, less prefers the likely, 0 takes the likeliest token."""
    top_k: Annotated[int, Ge(1)] | None = None
    """Draw among this many likeliest tokens."""
    top_p: Annotated[float, Gt(0), Le(1)] = 1.0
    """Draw among the fewest tokens whose probabilities add up to this."""
    min_p: Annotated[float, Ge(0), Le(1)] = 0.0
    """Draw among the tokens that have at least this share of the likeliest token's probability."""
    repetition_penalty: Annotated[float, Gt(0)] = 1.0
    """Above 1 makes tokens that occur in the prompt or were produced already less likely."""
    stop: Texts = ()
    """The text ends before the first of these strings; several are given as a list."""
    samples: Annotated[int, Ge(1)] = 1
    """How many texts are generated for each prompt."""
    seed: Annotated[int, Ge(0)] = 0
    """Seed of the sampling; the same prompt and seed give the same text."""
    beam: Annotated[int, Ge(1)] = 1
    """Above 1: search for the likeliest text with this many hypotheses, instead of sampling."""
    length_penalty: Annotated[float, Ge(0)] = 0.0
    """Of a beam search; above 0 favours longer texts."""
    score: bool = False
    """Produce nothing: give the log-probability of each token of the text."""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if isinstance(value, float) and not math.isfinite(value):
                raise ConfigError(f"{name} is {value}, expected a finite number.")
        if self.beam > 1 and self.samples > self.beam:
            raise ConfigError(f"samples is {self.samples}, expected at most beam={self.beam}. Raise the beam.")
        if any(not text for text in self.stop):
            raise ConfigError("stop holds an empty text, expected strings of one character at least.")

    @property
    def sampler(self) -> Sampler:
        """How tokens are drawn."""
        return Sampler(
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            repetition_penalty=self.repetition_penalty,
        )


@dataclass(frozen=True, kw_only=True)
class GenerateEvaluateOptions(ContextOptions):
    """How much of the past each token is predicted from."""


class Vocabulary(NamedTuple):
    """The tokeniser of a run."""

    tokeniser: Tokeniser

    def to_files(self) -> dict[str, str]:
        """Return it as JSON."""
        return {"tokeniser.json": self.tokeniser.to_text()}


class HeldOut(NamedTuple):
    """The held-out documents as ids, and their sizes."""

    ids: list[Ids]
    bytes: int
    characters: int


class Generate(Task):
    """Text generation as a task of the frame; see `foci.tasks.task.Task`."""

    name: ClassVar[str] = "generate"
    Config: ClassVar[type[Any]] = GenerateConfig
    Options: ClassVar[type[Any]] = GenerateOptions
    EvaluateOptions: ClassVar[type[Any]] = GenerateEvaluateOptions
    inputs: ClassVar[tuple[Field, ...]] = (Field("text", "document", required=False),)
    targets: ClassVar[tuple[Field, ...]] = ()
    score: ClassVar[Literal["probability", "log-probability"]] = "log-probability"
    unit: ClassVar[str] = "tokens"
    lines: ClassVar[bool] = True
    figures: ClassVar[Mapping[str, Literal["lower", "higher"]]] = {
        "loss": "lower",
        "perplexity": "lower",
        "bits_per_byte": "lower",
    }
    flags: ClassVar[Mapping[str, str]] = {
        "data": "data.path",
        "field": "data.field",
        "pattern": "data.pattern",
        "valid": "data.valid",
        "context": "data.context",
        "tokeniser": "tokeniser.kind",
        "model": "model.kind",
        "preset": "model.preset",
    }
    demo: ClassVar[Mapping[str, Any]] = {
        "training": {"max_steps": 1200, "warmup": 50, "valid_every": 400},
    }
    smallest: ClassVar[Mapping[str, Any]] = {
        "data": {"max_characters": 200, "context": 19, "batch_size": 4},
        "model": {"model_dim": 16, "num_heads": 2, "hidden_dim": 24, "num_layers": 2},
        "training": {"max_steps": 8, "valid_every": 4, "warmup": 2, "learning_rate": 0.02, "metrics_every": 1},
    }

    config: GenerateConfig

    # ---- data

    def read(self, log: Log) -> Splits:
        """Read the text, and hold out its end."""
        data = self.config.data
        _check_data(data)
        if data.stream:
            return self._stream(log)
        if data.path is None:
            log("no data is named: training on the language reference that comes with Python")
            documents = python_reference(data.max_characters)
        else:
            documents = self._files(data.path).documents()
        if data.valid is None:
            _check_several(data, documents)
            train, valid = hold_out(documents, data.valid_share, data.max_valid_characters, data.path)
        else:
            train, valid = documents, self._files(data.valid).documents()
        log(
            f"{_characters(train):,} characters in {_documents(train)} to train on, {_characters(valid):,} in "
            f"{_documents(valid)} held out; the first is {_quoted(train[0].text)}"
        )
        return Splits(train, valid, [])

    def read_records(self, paths: Sequence[str]) -> Sequence[Record]:
        """Read documents from files, folders or JSONL."""
        return [one._asdict() for path in paths for one in self._files(path).documents()]

    def _files(self, path: str) -> TextFiles:
        data = self.config.data
        return TextFiles(path, field=data.field, pattern=data.pattern, max_characters=data.max_characters)

    def _stream(self, log: Log) -> Splits:
        """Read everything once, to check and measure it; keep the end only."""
        data = self.config.data
        files = self._files(cast("str", data.path))
        total = sum(len(piece.text) for piece in files)
        if not total:
            raise files.no_text()
        if data.valid is not None:
            valid, cut = self._files(data.valid).documents(), total
        else:
            cut = total - min(total - int(total * (1 - data.valid_share)), data.max_valid_characters)
            valid = _after(files, cut)
        if not 0 < cut or not valid:
            raise DataError(f"{data.path}, line 1: {total} characters, expected enough to hold some of them out.")
        log(
            f"{cut:,} characters are streamed from {data.path}, {_characters(valid):,} held out; the first is "
            f"{_quoted(next(iter(files)).text)}"
        )
        return Splits(_Before(files, cut), valid, [])

    def assets(self, splits: Splits, log: Log) -> Vocabulary:
        """Train the tokeniser on the training text."""
        kind, size = self.config.tokeniser.kind, self.config.tokeniser.size
        made = Tokeniser.train(_Chunks(splits.train), kind, size)
        log(f"a vocabulary of {len(made):,} tokens ({kind})")
        return Vocabulary(made)

    def load_assets(self, read: Callable[[str], str]) -> Vocabulary:
        """Read the tokeniser."""
        return Vocabulary(Tokeniser.from_text(read("tokeniser.json"), "tokeniser.json"))

    def model(self, assets: Vocabulary) -> nn.Module:
        """Build the model for this vocabulary and context."""
        return self.config.model.build(len(assets.tokeniser), self.config.data.context)

    def batches(self, splits: Splits, assets: Vocabulary, shard: Shard, log: Log) -> Batches:
        """Encode the training text, and cut it into windows."""
        data, seed = self.config.data, self.config.training.seed
        if data.stream:
            return StreamBatches(
                splits.train,
                PieceEncoder(assets.tokeniser, data.context),
                buffer=data.stream_buffer,
                max_tokens=data.batch_size * (data.context + 1),
                seed=seed,
                workers=data.workers,
                **shard._asdict(),
            )
        ids = encode_documents(assets.tokeniser, list(splits.train))
        return WindowBatches(
            ids, context=data.context, batch_size=data.batch_size, seed=seed, **shard._asdict()
        )

    def held_out(self, splits: Splits, assets: Vocabulary, log: Log) -> HeldOut:
        """Encode the validation text."""
        return _encoded(assets.tokeniser, [one.text for one in splits.valid])

    # ---- loss and figures

    def loss(self, model: nn.Module, batch: TextBatch) -> Loss:
        """Return the cross-entropy, summed over the tokens."""
        wanted = batch.tokens[:, 1:]
        learned: TokenLoss = model(batch.tokens[:, :-1], Targets(wanted, padding=PAD))
        return Loss(learned.loss, (wanted != PAD).sum())

    def validate(self, model: nn.Module, held_out: HeldOut) -> dict[str, float]:
        """Return the figures of the held-out text, in windows side by side: fast, and a little too high."""
        context = self.config.data.context
        found = _likelihood(model, held_out, context, context, lambda done: None)
        return {"loss": found.nats, "perplexity": found.perplexity, "bits_per_byte": found.bits_per_byte}

    def evaluate(
        self,
        model: nn.Module,
        assets: Vocabulary,
        records: Sequence[Record],
        options: GenerateEvaluateOptions,
        progress: Progress,
    ) -> Evaluation:
        """Return nats, perplexity and bits per byte of all tokens, each predicted from a context."""
        context, stride = self._context(model, options)
        held_out = _encoded(assets.tokeniser, [record["text"] for record in records])
        found = _likelihood(model, held_out, context, stride, progress)
        unknown = sum(int((ids == UNK).sum()) for ids in held_out.ids)
        figures: dict[str, float | int] = {
            "documents": len(records),
            "characters": found.characters,
            "tokens": found.tokens,
            "nats": found.nats,
            "perplexity": found.perplexity,
            "bits_per_character": found.bits_per_character,
            "bits_per_byte": found.bits_per_byte,
            "unknown_tokens": unknown,
        }
        notes = {"context": f"each token is predicted from {context - stride} to {context - 1} tokens before it"}
        if unknown:
            notes["unknown"] = (
                f"{unknown} tokens were not seen in training and count as one symbol, which is easier to predict than "
                "they are. Train with tokeniser.kind=bpe or bytes, which spell every text."
            )
        return Evaluation(figures, notes)

    def _context(self, model: nn.Module, options: ContextOptions) -> tuple[int, int]:
        context, stride = options.sizes(self.config.data.context)
        longest = cast("LanguageModel", model).max_length
        if longest is not None and context > longest:
            raise ConfigError(f"context is {context}, expected at most the model's {longest} learned positions.")
        if stride >= context:
            raise ConfigError(f"stride is {stride}, expected less than the context of {context}.")
        return context, stride

    # ---- predictions

    def examples(self, records: Sequence[Record], count: int) -> list[Record]:
        """Return the beginnings of lines in the held-out text, as prompts."""
        lines = [line for record in records for line in record["text"].splitlines() if len(line.split()) > 3]
        some = lines[:: max(1, len(lines) // count)][:count] or [record["text"][:40] for record in records[:count]]
        return [{"text": " ".join(line.split()[:3])} for line in some]

    def predict(
        self,
        model: nn.Module,
        assets: Vocabulary,
        records: Sequence[Record],
        options: GenerateOptions,
        trace: bool,
        progress: Progress,
    ) -> list[Prediction]:
        """Continue the texts, or score them; a trace has what each produced token read."""
        found = []
        for record in records:
            prompt = _Prompt(self, model, assets.tokeniser, record, options)
            found.append(prompt.scored(trace) if options.score else prompt.continued(trace))
            progress(1)
        return found

    def stream(
        self, model: nn.Module, assets: Vocabulary, record: Record, options: GenerateOptions
    ) -> Generator[str, None, Prediction] | None:
        """Return the pieces of a text as they are produced; None where it is known at the end only."""
        if options.beam > 1 or options.samples > 1 or options.score:
            return None
        return _Prompt(self, model, assets.tokeniser, record, options).pieces()


class _Prompt:
    """One text, and what a model makes of it."""

    def __init__(
        self, task: Generate, model: nn.Module, tokeniser: Tokeniser, record: Record, options: GenerateOptions
    ) -> None:
        self.model, self.tokeniser, self.record, self.options = model, tokeniser, record, options
        self.context, self.stride = task._context(model, options)
        self.ids = encode_text(tokeniser, record["text"]).astype(np.int64)
        self.device = next(model.parameters()).device
        self.notes = []
        unknown = self._unknown()
        if unknown:
            self.notes.append(
                f"{len(unknown)} tokens of the text were not seen in training ({_quoted(''.join(unknown))}) and are read "
                "as <unk>. Train with tokeniser.kind=bpe or bytes, which spell every text."
            )
        if len(self.ids) >= self.context and not options.score:
            self.notes.append(
                f"the prompt has {len(self.ids)} tokens, the context of the model {self.context}: only the end is read"
            )

    def _unknown(self) -> list[str]:
        if not (self.ids == UNK).any():
            return []
        encoding = self.tokeniser.encode(self.record["text"])
        return [
            self.record["text"][start:end]
            for number, (start, end) in zip(encoding.ids, encoding.offsets)
            if number == UNK
        ]

    # ---- continued

    def continued(self, trace: bool) -> Prediction:
        options = self.options
        sliding, limits = self._sliding, self._limits
        if options.beam > 1:
            (hypotheses,) = beam(
                sliding,
                sliding.start(self._prompts(1), options.max_tokens),
                size=options.beam,
                n_best=options.samples,
                length_penalty=options.length_penalty,
                limits=limits,
            )
        else:
            prompts = self._prompts(options.samples)
            start = sliding.start(prompts, options.max_tokens)
            choose = options.sampler.chooser(self._generator, prompts)
            rows = follow(sliding, start, limits, choose, ends_here=_StopStrings(self.tokeniser, options.stop))
            hypotheses = [one for row in rows for one in row]
        made = [self._prediction(one, trace) for one in hypotheses]
        return replace(made[0], alternatives=tuple(made[1:]))

    def pieces(self) -> Generator[str, None, Prediction]:
        options, prompts = self.options, self._prompts(1)
        stop = _StopStrings(self.tokeniser, options.stop)
        steps = following(
            self._sliding,
            self._sliding.start(prompts, options.max_tokens),
            self._limits,
            options.sampler.chooser(self._generator, prompts),
            ends_here=stop,
        )
        given, stream, text = 0, self.tokeniser.text_stream(), ""
        while True:
            try:
                search = next(steps)
            except StopIteration as end:
                ((hypothesis,),) = end.value
                break
            text += stream(int(search.tokens[0, -1]))
            ready = len(text) - stop.held_back(text)
            if ready > given:
                yield text[given:ready]
                given = ready
        prediction = self._prediction(hypothesis, False)
        if len(prediction.output) > given:
            yield prediction.output[given:]
        return prediction

    @property
    def _sliding(self) -> SlidingContext:
        return SlidingContext(cast("LanguageModel", self.model), context=self.context, stride=self.stride, bos=BOS)

    @property
    def _limits(self) -> Limits:
        return Limits(max_length=self.options.max_tokens, bos=BOS, eos=EOS, banned=(PAD, BOS, UNK))

    @property
    def _generator(self) -> torch.Generator:
        return torch.Generator(self.device).manual_seed(self.options.seed)

    def _prompts(self, rows: int) -> Tensor:
        return torch.from_numpy(self.ids).to(self.device).expand(rows, -1)

    def _prediction(self, hypothesis: Hypothesis, trace: bool) -> Prediction:
        whole = self.tokeniser.decode(hypothesis.tokens)
        text = _before_stop(whole, self.options.stop)
        ended = hypothesis.finished and text == whole
        details: dict[str, Any] = {
            "log_prob": hypothesis.log_prob,
            "tokens": len(hypothesis.tokens),
            "ended_by": "stop" if text != whole else "end of text" if ended else "max_tokens",
        }
        if self.notes:
            details["notes"] = list(self.notes)
        traced = self._trace(hypothesis.tokens, text) if trace else None
        return Prediction(self.record, text, hypothesis.score, details, traced)

    # ---- scored

    def scored(self, trace: bool) -> Prediction:
        logs = log_probs(self.model, self.ids, self.context, self.stride)
        labels = self.tokeniser.labels(self.ids.tolist())
        total = float(logs.sum())
        likelihood = Likelihood(total, len(logs), len(self.record["text"].encode()), len(self.record["text"]))
        lines = [f"{log:9.4f}  {label}" for log, label in zip(logs.tolist(), labels)]
        details: dict[str, Any] = {
            "nats": likelihood.nats,
            "perplexity": likelihood.perplexity,
            "bits_per_byte": likelihood.bits_per_byte,
            "tokens": [[label, log] for label, log in zip(labels, logs.tolist())],
        }
        if self.notes:
            details["notes"] = list(self.notes)
        traced = self._trace([], self.record["text"]) if trace and len(self.ids) else None
        return Prediction(self.record, "\n".join(lines), total, details, traced)

    # ---- what was read

    def _trace(self, produced: list[int], text: str) -> Trace:
        """What each token of the last window read of the tokens before it, and how surprising each was.

        Without produced tokens these are the tokens of the text itself.
        """
        whole = [*self.ids.tolist(), *produced]
        begin = windows(len(whole), self.context, self.stride)[-1].begin if whole else 0
        tokens = whole[begin:]
        inputs = torch.tensor([[BOS, *tokens[:-1]]] if tokens else [[]], dtype=torch.long, device=self.device)
        predicted: TokenLogits = self.model(inputs)
        first = max(len(self.ids) - begin, 0) if produced else 0
        labels = self.tokeniser.labels(tokens)
        rows = torch.arange(first, len(tokens), device=self.device)
        surprise = -predicted.logits.float().log_softmax(dim=-1)[0, torch.arange(len(tokens)), tokens]
        cells = {
            "target": Cells("tokens", tuple(labels[first:]), "produced" if produced else "text"),
            "past": Cells("tokens", ("<bos>", *labels[:-1])[: len(tokens)], "text so far"),
            "text": Cells.of_document(_lines_of(labels, tokens, self.tokeniser), "text"),
            "all": Cells("tokens", ("surprise",), "share of the nats"),
        }
        attentions = {name: Weights.of(weights.rows(rows)) for name, weights in predicted.attentions.items()}
        between = dict.fromkeys(attentions, ("target", "past"))
        if tokens:
            attentions["surprise"] = Weights.of((surprise / surprise.sum().clamp_min(1e-9)).view(1, 1, -1))
            between["surprise"] = ("all", "text")
        facts: dict[str, str | float] = {"nats per token": float(surprise.mean()) if tokens else 0.0}
        return Trace.from_handles(attentions, cells, between, text=text, facts=facts)


class _StopStrings:
    """Ends a row when its text holds one of some strings."""

    def __init__(self, tokeniser: Tokeniser, stop: Sequence[str]) -> None:
        self.tokeniser, self.stop = tokeniser, stop
        self.streams: dict[int, Callable[[int], str]] = {}
        self.texts: dict[int, str] = {}

    def __call__(self, tokens: Tensor, sources: Sequence[int]) -> Tensor:
        ends = torch.zeros(tokens.shape[0], dtype=torch.bool, device=tokens.device)
        if not self.stop:
            return ends
        for row, (source, token) in enumerate(zip(sources, tokens[:, -1].tolist())):
            stream = self.streams.setdefault(source, self.tokeniser.text_stream())
            self.texts[source] = self.texts.get(source, "") + stream(token)
            ends[row] = any(text in self.texts[source] for text in self.stop)
        return ends

    def held_back(self, text: str) -> int:
        """How many characters at the end may belong to a stop string, and must not be shown yet."""
        cut = len(text) - len(_before_stop(text, self.stop))
        begun = [size for stop in self.stop for size in range(1, len(stop)) if text.endswith(stop[:size])]
        return max([cut, *begun])


def _before_stop(text: str, stop: Sequence[str]) -> str:
    places = [place for place in map(text.find, stop) if place >= 0]
    return text[: min(places)] if places else text


def log_probs(model: nn.Module, ids: Ids, context: int, stride: int) -> NDArray[np.float32]:
    """Return the log-probability of each token of a text, predicted from at most ``context`` tokens before it.

    Args:
        model: a language model, in ``eval()``.
        ids: the text.
        context: tokens of a window.
        stride: how far apart windows begin; see `foci.decoding.windows`.
    """
    plan = windows(len(ids), context, stride)
    found = np.zeros(len(ids), dtype=np.float32)
    device = next(model.parameters()).device
    rows = max(1, _TOKENS_AT_ONCE // context)
    for start in range(0, len(plan), rows):
        some = plan[start : start + rows]
        tokens = np.full((len(some), 1 + max(one.end - one.begin for one in some)), PAD, dtype=np.int64)
        tokens[:, 0] = BOS
        for row, one in zip(tokens, some):
            row[1 : 1 + one.end - one.begin] = ids[one.begin : one.end]
        given = torch.from_numpy(tokens).to(device)
        learned: TokenLoss = model(given[:, :-1], Targets(given[:, 1:], padding=PAD))
        logs = learned.log_probs.float().cpu().numpy()
        for row, one in zip(logs, some):
            found[one.new : one.end] = row[one.new - one.begin : one.end - one.begin]
    return found


def _likelihood(
    model: nn.Module, held_out: HeldOut, context: int, stride: int, progress: Progress
) -> Likelihood:
    total, tokens = 0.0, 0
    for ids in held_out.ids:
        total += float(log_probs(model, ids, context, stride).sum(dtype=np.float64))
        tokens += len(ids)
        progress(1)
    return Likelihood(total, tokens, held_out.bytes, held_out.characters)


def _encoded(tokeniser: Tokeniser, texts: Sequence[str]) -> HeldOut:
    return HeldOut(
        [encode_text(tokeniser, text) for text in texts],
        sum(len(text.encode()) for text in texts),
        sum(map(len, texts)),
    )


class PieceEncoder:
    """Pieces of documents to windows, for `foci.data.StreamBatches`."""

    def __init__(self, tokeniser: Tokeniser, context: int) -> None:
        self.tokeniser, self.context = tokeniser, context

    def __call__(self, pieces: Sequence[Piece]) -> WindowExamples:
        """Return the windows of these pieces in a row, with EOS between documents."""
        rows: list[Sequence[int]] = []
        encoded = self.tokeniser.encode_many(piece.text for piece in pieces)
        for number, (piece, ids) in enumerate(zip(pieces, encoded)):
            if number and piece.document != pieces[number - 1].document:
                rows.append([EOS])
            rows.append(ids)
        flat = np.concatenate([np.array(row, dtype=np.int64) for row in rows]) if rows else np.zeros(0, np.int64)
        return WindowExamples(flat, self.context)


class _Before:
    """The pieces of a text up to a character."""

    def __init__(self, pieces: Iterable[Piece], cut: int) -> None:
        self.pieces, self.cut = pieces, cut

    def __iter__(self) -> Iterator[Piece]:
        left = self.cut
        for piece in self.pieces:
            if left <= 0:
                return
            yield piece._replace(text=piece.text[:left])
            left -= len(piece.text)


def _after(pieces: Iterable[Piece], cut: int) -> list[Text]:
    """The documents from a character on."""
    parts: dict[int, list[str]] = {}
    left = cut
    for piece in pieces:
        if len(piece.text) > left:
            parts.setdefault(piece.document, []).append(piece.text[max(left, 0) :])
        left -= len(piece.text)
    return [Text("".join(texts)) for texts in parts.values()]


class _Chunks:
    """The texts of documents or pieces, in chunks that a tokeniser is trained on one at a time."""

    def __init__(self, texts: Iterable[Text | Piece]) -> None:
        self.texts = texts

    def __iter__(self) -> Iterator[str]:
        return (chunk for one in self.texts for chunk in chunks(one.text))


def _check_data(data: DataConfig) -> None:
    if data.path is None:
        for name in ("valid", "stream"):
            if getattr(data, name):
                raise ConfigError(f"data.{name} is set, but data.path is not. Name the text to train on (--data).")


def _check_several(data: DataConfig, documents: Sequence[Text]) -> None:
    """Raise where whole documents are held out, and there is only one: a single JSON object."""
    path = str(data.path)
    if len(documents) == 1 and path.lower().removesuffix(".gz").removesuffix(".xz").endswith((".jsonl", ".json")):
        raise DataError(
            f"{data.path}, line 1: the only document, expected at least two: the last ones are held out. Write a single "
            "text to a .txt file, of which the end is held out."
        )


def _characters(texts: Sequence[Text]) -> int:
    return sum(len(one.text) for one in texts)


def _documents(texts: Sequence[Text]) -> str:
    return "1 document" if len(texts) == 1 else f"{len(texts):,} documents"


def _lines_of(labels: Sequence[str], tokens: Sequence[int], tokeniser: Tokeniser) -> list[list[str]]:
    """The labels, line by line."""
    lines: list[list[str]] = [[]]
    for label, token in zip(labels, tokens):
        lines[-1].append(label)
        if "\n" in tokeniser.decode([token]):
            lines.append([])
    return [line for line in lines if line]


def _quoted(text: str) -> str:
    return repr(printable(text if len(text) <= 60 else f"{text[:59]}…"))
