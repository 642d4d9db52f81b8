"""Translation: from sentence pairs to a translator whose every word shows what it was read from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from foci.data import BOS, EOS, PAD, Pair, PairExamples, Sequences, StreamBatches, TokenBatches, Tokeniser
from foci.data.batch import Batch
from foci.decoding import Hypothesis, Limits, beam, greedy, sample, start_from_source
from foci.errors import ConfigError, DataError, check_positive
from foci.layers.incremental.quantised_linear import quantise
from foci.layers.token_loss import Targets, TokenLogits, TokenLoss
from foci.models.encoder_decoder import EncoderDecoder
from foci.tasks import config as configs
from foci.tasks.runs import Say, by_length, find_checkpoint
from foci.tasks.translate_config import TokeniserConfig, TranslateConfig, read_corpora
from foci.training import Loss, RunFolder, Summary, check_rates, fit, launched, load_weights, read_config
from foci.training.engine import Batches
from foci.training.run_folder import say_aside
from foci.viz.trace import Cells, Trace

__all__ = [
    "PairEncoder",
    "Prediction",
    "Search",
    "TranslateConfig",
    "Translation",
    "TranslationObjective",
    "Translator",
    "train",
    "train_tokenisers",
]

TOKENISER_FILES = ("source.tokeniser.json", "target.tokeniser.json")


class _Side:
    """One side, or both, of sentence pairs, which may be too many to hold."""

    def __init__(self, pairs: Iterable[Pair], *columns: int) -> None:
        self.pairs, self.columns = pairs, columns

    def __iter__(self) -> Iterator[str]:
        return (pair[column] for column in self.columns for pair in self.pairs)


def train_tokenisers(config: TokeniserConfig, pairs: Iterable[Pair]) -> tuple[Tokeniser, Tokeniser]:
    """One for each side; the same one twice when they are shared."""
    if config.shared:
        both = Tokeniser.train(_Side(pairs, 0, 1), config.kind, config.size)
        return both, both
    first, second = (Tokeniser.train(_Side(pairs, column), config.kind, config.size) for column in (0, 1))
    return first, second


class TranslationObjective:
    """Label-smoothed cross-entropy of the next token; judged by the plain one."""

    def __init__(self, model: nn.Module, valid: TokenBatches[Batch], label_smoothing: float) -> None:
        self.model = model
        self.valid = valid
        self.label_smoothing = label_smoothing

    def loss(self, batch: Batch) -> Loss:
        """Summed over the tokens of the batch."""
        wanted = Targets(batch.target[:, 1:], self.label_smoothing, PAD)
        learned: TokenLoss = self.model(batch.source, batch.source_valid, batch.target[:, :-1], wanted)
        known = batch.target_valid[:, 1:]
        return Loss(learned.loss + _attention_loss(learned, known), known.sum())

    def validate(self, model: nn.Module) -> dict[str, float]:
        """Nats a token, and their exponential."""
        total, count = 0.0, 0
        device = next(model.parameters()).device
        for batch in self.valid.epoch(0):
            source, source_valid, target, target_valid = (tensor.to(device) for tensor in batch)
            learned: TokenLoss = model(source, source_valid, target[:, :-1], Targets(target[:, 1:], padding=PAD))
            total += float(learned.loss)
            count += int(target_valid[:, 1:].sum())
        loss = total / max(count, 1)
        return {"loss": loss, "perplexity": float(np.exp(min(loss, 700.0)))}


def _attention_loss(learned: TokenLoss, known: Tensor) -> Tensor | float:
    """REINFORCE for attention that samples: what was chosen is made likelier as far as the words came out well."""
    sampled = [weights for weights in learned.attentions.values() if weights.log_prob is not None]
    if not sampled:
        return 0.0
    reward = learned.log_probs
    advantage = (reward - reward.sum() / known.sum().clamp_min(1)) * known
    return -sum((advantage * cast("Tensor", weights.log_prob)).sum() for weights in sampled)


def train(config: TranslateConfig, out: str | Path, *, resume: bool = False, say: Say | None = None) -> Summary:
    """Train a translator into the folder ``out``; with ``resume`` go on with the run that lies there."""
    say = say or say_aside
    out = Path(out)
    with launched(config.training) as fabric:
        main = fabric.global_rank == 0
        tell: Say = say if main else (lambda text: None)
        # The data is read first: what is wrong with it must be told before a folder is made.
        corpora = read_corpora(config.data, config.training.seed, tell)
        with torch.device("meta"):  # so must be what is wrong with the model; its vocabularies come later
            check_rates(config.model.build(8, 8), config.training)
        hint = f"foci train translate --resume --out {out}"
        with RunFolder(out, asdict(config), resume=resume, main=main, resume_hint=hint, say=tell) as run:
            if main and not all((out / name).exists() for name in TOKENISER_FILES):
                for name, tokeniser in zip(TOKENISER_FILES, train_tokenisers(config.tokeniser, corpora.train)):
                    tokeniser.save(out / f".{name}")
                    (out / f".{name}").replace(out / name)
            fabric.barrier()
            source, target = (Tokeniser.load(out / name) for name in TOKENISER_FILES)
            encoder = PairEncoder(source, target, config.data.max_length)
            batches, amount = _batches(corpora.train, encoder, config, fabric, tell)
            held_out = encoder.all_of(list(corpora.valid), tell)
            torch.manual_seed(config.training.seed)
            model = config.model.build(len(source), len(target))
            tell(
                f"{amount} pairs to train on, {len(held_out.source)} held out; vocabularies of "
                f"{len(source)} and {len(target)}; {sum(p.numel() for p in model.parameters()):,} parameters"
            )
            valid: TokenBatches[Batch] = TokenBatches(held_out, max_tokens=config.data.max_tokens)
            objective = TranslationObjective(model, valid, config.label_smoothing)
            return fit(objective, batches, config.training, run, fabric=fabric)


def _batches(
    pairs: Iterable[Pair], encoder: PairEncoder, config: TranslateConfig, fabric: Fabric, say: Say
) -> tuple[Batches, str]:
    """This process's share of the training pairs, and how many there are, in words."""
    data = config.data
    share: dict[str, Any] = {
        "max_tokens": data.max_tokens,
        "seed": config.training.seed,
        "rank": fabric.global_rank,
        "world_size": fabric.world_size,
        "workers": data.workers,
    }
    if data.stream:
        return StreamBatches(pairs, encoder, buffer=data.stream_buffer, **share), "a stream of"
    examples = encoder.all_of(list(pairs), say)
    return TokenBatches(examples, **share), str(len(examples.source))


class PairEncoder:
    """Sentence pairs to ids; pairs with a side of more than ``longest`` tokens, or without a source, are left out."""

    def __init__(self, source: Tokeniser, target: Tokeniser, longest: int) -> None:
        self.source, self.target, self.longest = source, target, longest

    def __call__(self, pairs: Sequence[Pair]) -> PairExamples:
        """What is left of these pairs, which may be nothing."""
        examples = PairExamples.encode(pairs, self.source, self.target)
        fits = np.flatnonzero((examples.lengths.max(axis=1) <= self.longest) & (examples.source.lengths > 0))
        if len(fits) == len(pairs):
            return examples
        sides = ((examples.source, self.source), (examples.target, self.target))
        kept = [Sequences((side[int(i)] for i in fits), len(tokeniser)) for side, tokeniser in sides]
        return PairExamples(*kept)

    def all_of(self, pairs: Sequence[Pair], say: Say) -> PairExamples:
        """The same for a whole corpus: it tells how many are left out, and that all of them are."""
        examples = self(pairs)
        left = len(examples.source)
        if left == 0:
            raise DataError(
                f"no sentence pair has at most data.max_length = {self.longest} tokens on both sides. Raise it."
            )
        if left < len(pairs):
            say(f"{len(pairs) - left} of {len(pairs)} pairs have a side of more than {self.longest} tokens: left out")
        return examples


class Translation(NamedTuple):
    """A hypothesis as text; ``trace``, if asked for, is everything that was attended to in making it."""

    text: str
    score: float
    log_prob: float
    finished: bool
    trace: Trace | None


class Prediction(NamedTuple):
    """What was made of one text: the best translation's text, score and trace, and the ``n_best`` translations."""

    source: str
    text: str
    score: float
    trace: Trace | None
    translations: tuple[Translation, ...]


@dataclass(frozen=True, kw_only=True)
class Search:
    """How translations are looked for. ``beam=1`` is greedy search; a ``temperature`` samples instead."""

    beam: int = 5
    n_best: int = 1
    length_penalty: float = 0.6
    coverage_penalty: float = 0.0
    no_repeat_ngram: int = 0
    min_length: int = 0
    max_length: int | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        check_positive("Search", beam=self.beam, n_best=self.n_best)
        if self.temperature is None and self.n_best > self.beam:
            raise ConfigError(f"n_best is {self.n_best}, expected at most beam={self.beam}. Raise the beam.")

    def run(
        self, model: EncoderDecoder, source: Tensor, valid: Tensor, prefix: Sequence[Sequence[int]] | None
    ) -> list[list[Hypothesis]]:
        """The hypotheses of a batch."""
        limits = Limits(
            max_length=self.max_length,
            min_length=self.min_length,
            no_repeat_ngram=self.no_repeat_ngram,
            prefix=prefix,
            bos=BOS,
            eos=EOS,
            banned=(PAD, BOS),
        )
        start = start_from_source(model, source, valid)
        if self.temperature is not None:
            return sample(
                model,
                start,
                samples=self.n_best,
                temperature=self.temperature,
                top_k=self.top_k,
                top_p=self.top_p,
                generator=torch.Generator(source.device).manual_seed(self.seed),
                limits=limits,
            )
        if self.beam == 1:
            return greedy(model, start, limits=limits)
        return beam(
            model,
            start,
            size=self.beam,
            n_best=self.n_best,
            length_penalty=self.length_penalty,
            coverage_penalty=self.coverage_penalty,
            limits=limits,
        )


class Translator:
    """A trained run. Made by `foci.load`.

    Arguments:
        model: in evaluation mode.
        source, target: the tokenisers.
        config: the run's configuration.
    """

    def __init__(self, model: nn.Module, source: Tokeniser, target: Tokeniser, config: TranslateConfig) -> None:
        self.model = model.eval()
        self.source, self.target = source, target
        self.config = config

    @classmethod
    def load(cls, path: Path, *, checkpoint: str = "auto") -> Translator:
        """The run that lies there."""
        file = path / "config.json"
        config = TranslateConfig.from_table(configs.without_none(read_config(path)), str(file), "")
        source, target = (Tokeniser.load(path / name) for name in TOKENISER_FILES)
        model = config.model.build(len(source), len(target))
        load_weights(model, find_checkpoint(path, checkpoint))
        return cls(model, source, target, config)

    def quantised(self) -> Translator:
        """The same with large linear layers in 8-bit integers: faster on a CPU, and a little less exact."""
        return Translator(quantise(self.model), self.source, self.target, self.config)

    def predict(
        self,
        texts: Iterable[str],
        *,
        search: Search | None = None,
        prefixes: Sequence[str] | None = None,
        trace: bool = False,
        batch_tokens: int = 2048,
        progress: Callable[[int], None] | None = None,
    ) -> list[Prediction]:
        """Translate; results come in the order of the texts.

        Arguments:
            search: how to look for translations; a beam of 5 unless given.
            prefixes: for each text, what its translation begins with.
            trace: keep what was attended to. It costs one more pass over the translation, nothing otherwise.
            batch_tokens: how many tokens are translated together.
            progress: called with the number of texts that are done.
        """
        texts = list(texts)
        if prefixes is not None and len(prefixes) != len(texts):
            raise ConfigError(f"predict: {len(prefixes)} prefixes for {len(texts)} texts, expected one for each.")
        search = search or Search()
        rows = list(self.source.encode_many(texts))
        begun = None if prefixes is None else list(self.target.encode_many(prefixes))
        found: dict[int, Prediction] = {}
        for indices in by_length([len(row) for row in rows], batch_tokens):
            some = [rows[i] for i in indices]
            prefix = None if begun is None else [begun[i] for i in indices]
            for i, hypotheses in zip(indices, self._search(some, search, prefix)):
                found[i] = self._prediction(texts[i], rows[i], hypotheses, trace)
            if progress is not None:
                progress(len(indices))
        return [found[i] for i in range(len(texts))]

    def _search(self, rows: list[list[int]], search: Search, prefix: list[list[int]] | None) -> list[list[Hypothesis]]:
        source, valid = self._padded(rows)
        return search.run(cast("EncoderDecoder", self.model), source, valid, prefix)

    def _padded(self, rows: list[list[int]]) -> tuple[Tensor, Tensor]:
        width = max(1, *map(len, rows))
        source, valid = Sequences(rows, len(self.source)).padded(np.arange(len(rows)), width)
        device = next(self.model.parameters()).device
        return torch.from_numpy(source).to(device), torch.from_numpy(valid).to(device)

    def _prediction(self, text: str, row: list[int], hypotheses: list[Hypothesis], trace: bool) -> Prediction:
        translations = tuple(
            Translation(
                self.target.decode(hypothesis.tokens),
                hypothesis.score,
                hypothesis.log_prob,
                hypothesis.finished,
                self._trace(row, hypothesis) if trace else None,
            )
            for hypothesis in hypotheses
        )
        best = translations[0]
        return Prediction(text, best.text, best.score, best.trace, translations)

    @torch.no_grad()
    def _trace(self, row: list[int], hypothesis: Hypothesis) -> Trace:
        """What was attended to for each produced token: by teacher forcing, which reads what the search has read."""
        source, valid = self._padded([row])
        produced = [*hypothesis.tokens, EOS] if hypothesis.finished else hypothesis.tokens
        target = torch.tensor([[BOS, *produced[:-1]]] if produced else [[]], dtype=torch.long, device=source.device)
        predicted: TokenLogits = self.model(source, valid, target)
        # The decoder reads its own input, which is one token behind what it produces.
        read = ["<bos>", *self.target.labels(produced[:-1])] if produced else []
        cells = {
            "source": Cells("tokens", tuple(self.source.labels(row)), "source"),
            "target": Cells("tokens", tuple(self.target.labels(produced)), "target"),
            "input": Cells("tokens", tuple(read), "target so far"),
        }
        between = {
            name: ("target", "input") if name.startswith("decoder.") and name.endswith(".self") else None
            for name in predicted.attentions
        }
        return Trace.from_handles(
            predicted.attentions,
            cells,
            between={name: pair for name, pair in between.items() if pair is not None},
            text=self.target.decode(hypothesis.tokens),
            facts={"score": hypothesis.score, "log-probability": hypothesis.log_prob},
        )

    def evaluate(
        self,
        pairs: Sequence[Pair],
        *,
        search: Search | None = None,
        predictions: Sequence[Prediction] | None = None,
        tokenize: str | None = None,
        lowercase: bool = False,
        batch_tokens: int = 2048,
        progress: Callable[[int], None] | None = None,
    ) -> dict[str, float | str]:
        """BLEU and chrF by sacrebleu, with their signatures, exact matches, and perplexity.

        Arguments:
            predictions: of the sources, where they have been made already.
            tokenize: sacrebleu's tokeniser: "13a" unless the targets are Chinese ("zh"), Japanese or Korean ("char").
            lowercase: compare without case.
        """
        if not pairs:
            raise DataError("evaluate: there are no sentence pairs.")
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF

        sources, wanted = [pair.source for pair in pairs], [pair.target for pair in pairs]
        if predictions is None:
            predictions = self.predict(sources, search=search, batch_tokens=batch_tokens, progress=progress)
        if [prediction.source for prediction in predictions] != sources:
            raise DataError("evaluate: the predictions are not those of the pairs' sources, in their order.")
        produced = [prediction.text for prediction in predictions]
        bleu = BLEU(tokenize=tokenize or _sacrebleu_tokeniser(wanted), lowercase=lowercase)
        chrf = CHRF(lowercase=lowercase)
        examples = PairExamples.encode(pairs, self.source, self.target)
        longest = int(examples.lengths.max())
        valid: TokenBatches[Batch] = TokenBatches(examples, max_tokens=max(batch_tokens, longest))
        with torch.no_grad():
            figures = TranslationObjective(self.model, valid, 0.0).validate(self.model)
        return {
            "sentences": float(len(pairs)),
            "bleu": bleu.corpus_score(produced, [wanted]).score,
            "bleu_signature": str(bleu.get_signature()),
            "chrf": chrf.corpus_score(produced, [wanted]).score,
            "chrf_signature": str(chrf.get_signature()),
            "exact": sum(a == b for a, b in zip(produced, wanted)) / len(pairs),
            "perplexity": figures["perplexity"],
        }


def _sacrebleu_tokeniser(texts: Sequence[str]) -> str:
    """By the letters of the texts: words are not set apart in Chinese, Japanese, Thai and others."""
    letters = [character for text in texts[:500] for character in text if character.isalpha()]
    if not letters:
        return "13a"

    def share(*ranges: tuple[str, str]) -> float:
        return sum(any(a <= letter <= b for a, b in ranges) for letter in letters) / len(letters)

    kana_hangul_thai = share(("\u3040", "\u30ff"), ("\uac00", "\ud7af"), ("\u0e00", "\u0eff"), ("\u1780", "\u17ff"))
    if kana_hangul_thai > 0.1:
        return "char"
    return "zh" if share(("\u3400", "\u9fff")) > 0.3 else "13a"
