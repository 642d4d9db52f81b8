"""Translation: trained on sentence pairs; each generated word has its attention weights over the source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, cast

import numpy as np
from torch import Tensor, nn

from foci.data import UNK, Pair, PairExamples, Sequences, StreamBatches, TokenBatches, Tokenizer, open_corpus
from foci.data.batching import Batch
from foci.data.copy_ids import CopyExamples, CopyIds, SourceRow
from foci.data.lines import Fault, text_encoding
from foci.data.pairs import NO_PARTNER, Corpus, check, read_pairs
from foci.data.splits import pair_key, place_of, text_key
from foci.errors import ConfigError, DataError
from foci.layers.token_loss import TokenLoss
from foci.metrics import overlap
from foci.metrics.attention import format_pharaoh
from foci.models.build import build_seq2seq
from foci.scripts import NormalForm, normalized
from foci.tasks.frame.assets import Assets
from foci.tasks.frame.file_task import shortened
from foci.tasks.frame.notes import unknown_note
from foci.tasks.frame.search_options import SearchOptions
from foci.tasks.frame.seq2seq_task import Seq2SeqTask
from foci.tasks.frame.task import (
    Evaluation,
    Field,
    Log,
    NamedAxes,
    Progress,
    Record,
    Shard,
    Splits,
    Suited,
    silent,
    token_axes,
)
from foci.tasks.translate import config as configs
from foci.tasks.translate.aligning import AlignmentReader, WordAlignment, token_pairs
from foci.tasks.translate.config import LANGUAGES, DataConfig, TranslateConfig, TranslateEvaluateOptions
from foci.tasks.translate.guidance import (
    GuidedBatch,
    GuidedExamples,
    TrainingLinks,
    guidance_loss,
    guided_weights,
    links_of_file,
)
from foci.tasks.translate.word_links import own_links
from foci.training.objective import Batches, Loss

_VALIDATED = 2000
"""How many of the pairs that were held out are validated with, at most."""
_BYTES_PER_TOKEN = 4
"""Of UTF-8, about, in every script: a word of English is one token or two, a Chinese character is three bytes."""
_STEPS_PER_EPOCH, _LEAST_BATCH = 400, 512
"""What the size of a batch is chosen by where there is little data."""
_SEEN, _LEAST_VOCABULARY = 100, 1000
"""What the size of a vocabulary is chosen by: how often a token occurs on average."""
_LEAST_WARMUP = 100


@dataclass(frozen=True)
class Tokenizers(Assets):
    """One for each side; the same one twice where they are shared."""

    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    links: TrainingLinks = field(default_factory=TrainingLinks)
    """Of the words of the training pairs, where attention is guided; else none, and no file."""

    def to_files(self) -> dict[str, str]:
        """Return the text of each file by its name."""
        return {name: text for name, text in super().to_files().items() if self.links.lines or name != "links.json"}


class Translate(Seq2SeqTask):
    """The translation task."""

    name: ClassVar[str] = "translate"
    Config: ClassVar[type[Any]] = TranslateConfig
    Options: ClassVar[type[Any]] = SearchOptions
    EvaluateOptions: ClassVar[type[Any]] = TranslateEvaluateOptions
    AlignOptions: ClassVar[type[Any] | None] = configs.AlignOptions
    Assets: ClassVar[type[Any]] = Tokenizers
    inputs: ClassVar[tuple[Field, ...]] = (Field("source", "sentence"),)
    targets: ClassVar[tuple[Field, ...]] = (Field("target", "sentence"),)
    noun: ClassVar[str] = "sentence pairs"
    about: ClassVar[str] = "source (case, punctuation and spaces aside)"
    produces: ClassVar[str] = "translation"
    allows_unknown: ClassVar[bool] = True
    builtin_sizes: ClassVar[tuple[int, int, int]] = (20_000, 500, 300)

    config: TranslateConfig

    # ---- data

    def read(self, log: Log) -> Splits:
        """Read, check and split the sentence pairs; a stream is checked once, and read in every epoch."""
        data = self.config.data
        _check_data(data)
        _ = self._languages  # the form of data.languages
        if not data.stream:
            return super().read(log)
        corpus = self._open(cast("str", data.path), data.target)
        count = check(corpus, log)
        valid, test = (
            [] if path is None else self.read_part(part, path, log)
            for part, path in (("valid", data.valid), ("test", data.test))
        )
        log(
            f"{count:,} pairs are streamed from {data.path}, {len(valid):,} held out to validate, {len(test):,} to "
            "evaluate"
        )
        return Splits(
            _NormalPairs(corpus, data.normalize), *(list(map(self.normal_example, some)) for some in (valid, test))
        )

    def read_file(self, path: str, log: Log | None = None) -> list[Pair]:
        """Read a file with both sides."""
        return read_pairs(self._open(path), log)

    def read_part(self, part: str, path: str, log: Log) -> list[Pair]:
        """Read the pairs of a part: two aligned files, or one with both sides."""
        data = self.config.data
        targets = {"train": data.target, "valid": data.valid_target, "test": data.test_target}
        pairs = read_pairs(self._open(path, targets[part]), log)
        if part == "train" and len(pairs) < 2 and data.valid is None:
            raise DataError(f"{data.path}, line 1: the only sentence pair, expected at least two: some are held out.")
        return pairs

    def read_records(self, paths: Sequence[str]) -> Sequence[Record]:
        """Read two aligned files, or one with both sides."""
        if len(paths) > 2:
            raise ConfigError(f"got {len(paths)} files, expected a file of sources and one of targets, or one of both.")
        return [pair._asdict() for pair in read_pairs(self._open(*paths))]

    def _open(self, source: str, target: str | None = None) -> Corpus:
        return open_corpus(source, target, columns=self.config.data.columns if target is None else None)

    def key(self, example: Pair) -> str:
        """Return the source: pairs with equal sources are never in two parts."""
        return text_key(example.source)

    def twins(self, examples: Sequence[Pair]) -> list[str]:
        """Return both sides of each, whichever comes first."""
        return [pair_key(*one) for one in examples]

    def nothing_left(self, count: int, use: str) -> DataError:
        """Return the error for a part without pairs."""
        data = self.config.data
        return DataError(
            f"{data.path}, line 1: of {count} sentence pairs none is left to {use} (those of one source stay "
            f"together). Give more of them, change data.valid_share = {data.valid_share} or data.test_share = "
            f"{data.test_share}, or name data.valid."
        )

    def show(self, example: Pair) -> str:
        """Return both sides."""
        return shortened(*example)

    def sizes(self, builtin: int) -> tuple[int, int, int]:
        """Return how many phrases each part has."""
        _, valid, test = self.builtin_sizes
        return builtin, min(valid, builtin), min(test, builtin)

    def read_builtin(self, size: int, part: str) -> list[Pair]:
        """Return phrases in two languages of CLDR."""
        from foci.data.builtin.phrasebook import phrasebook

        source, target = (str(language) for language in self._languages)
        return phrasebook(source, target, split=part, size=size, seed=self.config.data.split_seed)

    @property
    def _languages(self) -> tuple[str, str] | tuple[None, None]:
        """The locales of both sides, None where those of the files are not known."""
        data = self.config.data
        if data.languages is None and data.path is not None:
            return None, None
        source, dash, target = (data.languages or LANGUAGES).partition("-")
        if not dash or not target:
            raise ConfigError(f"data.languages is {data.languages!r}, expected two locales, as in en-zh.")
        return source, target

    def describe(self, assets: Any) -> dict[str, str]:
        """Return the languages, where they are known, and the sizes of the vocabularies."""
        source, target = self._languages
        return {**({"languages": f"{source} → {target}"} if source else {}), **super().describe(assets)}

    def suited(self, splits: Splits) -> dict[str, Suited]:
        """Return smaller batches and vocabularies, a shorter warm-up and pre-norm for little data; a stream is much."""
        config, defaults = self.config, TranslateConfig()
        if config.data.stream:
            return {}
        pairs = list(splits.train)
        tokens = max(sum(len(text.encode()) for text in side) for side in zip(*pairs)) // _BYTES_PER_TOKEN
        if tokens >= defaults.data.batch_tokens * _STEPS_PER_EPOCH:
            return {}
        about = f"{len(pairs):,} pairs have about {tokens:,} tokens"
        batch = max(_LEAST_BATCH, 2 ** (tokens // _STEPS_PER_EPOCH).bit_length() // 2)
        least = "this is the least that is chosen"
        reason = least if batch == _LEAST_BATCH else f"an epoch should have {_STEPS_PER_EPOCH} steps or more"
        chosen = {"data.batch_tokens": Suited(batch, f"{about}; {reason}")}
        if config.tokenizer.kind in ("bpe", "unigram"):
            size = max(_LEAST_VOCABULARY, min(defaults.tokenizer.size, tokens // _SEEN // 500 * 500))
            reason = least if size == _LEAST_VOCABULARY else f"each should occur {_SEEN} times or more on average"
            chosen["tokenizer.size"] = Suited(size, f"{about}; {reason}")
        if config.model.preset == "tiny":  # those of papers stay as they were published
            norm = Suited("pre", "it needs no long warm-up, which little data has no time for")
            parts = {"encoder": config.model.encoder, "decoder": config.model.decoder}
            chosen |= {f"model.{name}.norm": norm for name, part in parts.items() if part.kind == "transformer"}
        warmup = min(defaults.training.warmup, max(_LEAST_WARMUP, tokens // batch // 2))
        reason = f"half an epoch, at least {_LEAST_WARMUP} steps"
        steps = config.training.max_steps
        if steps is not None and warmup > steps // 10:
            warmup, reason = steps // 10, f"a tenth of training.max_steps = {steps:,}"
        return {**chosen, "training.warmup": Suited(warmup, reason)}

    def assets(self, splits: Splits, log: Log) -> Tokenizers:
        """Train the tokenizers on the training pairs."""
        kind, size = self.config.tokenizer.kind, self.config.tokenizer.size
        if self.config.tokenizer.shared:
            both = Tokenizer.train(_Side(splits.train, 0, 1), kind, size)
            made = Tokenizers(both, both)
        else:
            source, target = (Tokenizer.train(_Side(splits.train, column), kind, size) for column in (0, 1))
            made = Tokenizers(source, target)
        notes = made.source_tokenizer.note or made.target_tokenizer.note
        log(f"vocabularies of {len(made.source_tokenizer):,} and {len(made.target_tokenizer):,} tokens ({kind}{notes})")
        return replace(made, links=self._links(list(splits.train), log)) if self.config.guidance.weight else made

    def _links(self, pairs: Sequence[Pair], log: Log) -> TrainingLinks:
        """Return the links of the training pairs: those of a file, or foci's own."""
        data, guidance = self.config.data, self.config.guidance
        if data.links is not None:
            with text_encoding(self.encoding):
                every = list(map(self.normal_example, self.read_part("train", cast("str", data.path), silent)))
                found = links_of_file(data.links, every, pairs)
        else:
            seed = self.config.training.seed
            found = own_links(pairs, steps=guidance.aligner_steps, longest=data.max_length, seed=seed, log=log)
        count, without = sum(len(one.all) for one in found), sum(not one.all for one in found)
        if not count:
            raise DataError(
                f"{data.links or 'guidance'}: no links in {len(pairs):,} pairs to train on, expected some to lead "
                "attention along. Name a file of links in data.links, or leave guidance out."
            )
        log(f"attention is led along {count:,} links of words; {without:,} of {len(pairs):,} pairs have none")
        return TrainingLinks([format_pharaoh([one]) for one in found])

    def tokenizers(self, assets: Tokenizers) -> tuple[Tokenizer, Tokenizer]:
        """Return those of both sides."""
        return assets.source_tokenizer, assets.target_tokenizer

    def plain(self, text: str) -> str:
        """Return the text as it is."""
        return text

    def decode(self, assets: Tokenizers, sources: list[SourceRow], number: int, tokens: Sequence[int]) -> str:
        """Return the text of tokens as it is."""
        return assets.target_tokenizer.decode(tokens, sources[number].own)

    def model(self, assets: Tokenizers) -> nn.Module:
        """Build the model for these vocabularies."""
        source, target = self.tokenizers(assets)
        return build_seq2seq(len(source), len(target), self.config.model)

    def named_axes(self, assets: Tokenizers) -> NamedAxes:
        """Return which rows of the weights are tokens."""
        encoder, decoder = (side.labels(range(len(side))) for side in self.tokenizers(assets))
        return token_axes("encoder", encoder) | token_axes("decoder", decoder)

    def batches(self, splits: Splits, assets: Tokenizers, shard: Shard, log: Log) -> Batches:
        """Encode and batch the training pairs."""
        data = self.config.data
        options = self.batching(shard, data.batch_tokens)
        if data.stream:
            encode = PairEncoder(*self.tokenizers(assets), data.max_length, self.copies)
            return StreamBatches(splits.train, encode, buffer=data.stream_buffer, **options)
        train = list(splits.train)
        examples, kept = self._fitting(train, assets, log)
        if not self.config.guidance.weight:
            return TokenBatches(examples, **options)
        count = len(assets.links.lines)
        if count != len(train):
            raise DataError(
                f"links.json: links of {count:,} pairs, but there are {len(train):,} to train on. Resume with the same "
                "data, or start anew."
            )
        pairs = token_pairs([train[number] for number in kept], self.tokenizers(assets))
        shift = self.config.guidance.shift
        return TokenBatches(GuidedExamples(examples, pairs, assets.links.of(kept), shift=shift), **options)

    def held_out(self, splits: Splits, assets: Tokenizers, log: Log) -> TokenBatches[Batch]:
        """Encode and batch the validation pairs."""
        data, pairs = self.config.data, splits.valid
        if data.valid is None and len(pairs) > _VALIDATED:
            pairs = sorted(pairs, key=lambda pair: place_of(self.key(pair), data.split_seed))[:_VALIDATED]
        return TokenBatches(self._fitting(pairs, assets, log)[0], max_tokens=data.batch_tokens)

    def _fitting(self, pairs: Iterable[Pair], assets: Tokenizers, log: Log) -> tuple[PairExamples, list[int]]:
        """Return the pairs that are not too long, encoded, and their numbers."""
        longest = self.config.data.max_length
        pairs = list(pairs)
        examples, kept = PairEncoder(*self.tokenizers(assets), longest, self.copies).fitting(pairs)
        left = len(kept)
        if left == 0:
            raise DataError(f"no sentence pair has at most data.max_length = {longest} tokens on both sides. Raise it.")
        if left < len(pairs):
            log(f"{len(pairs) - left:,} of {len(pairs):,} pairs have a side of more than {longest} tokens: left out")
        return examples, kept

    # ---- loss and metrics

    def loss(self, model: nn.Module, batch: Batch | GuidedBatch) -> Loss:
        """Return the label-smoothed cross-entropy, summed over the target tokens, and what guides attention."""
        learned = self.learn(model, batch, self.config.label_smoothing)
        known = batch.target_valid[:, 1:]
        total = learned.loss + _attention_loss(learned, known)
        if not isinstance(batch, GuidedBatch):
            return Loss(total, known.sum())
        guidance = self.config.guidance
        away = guidance_loss(guided_weights(guidance, learned.attentions), batch.guide)
        return Loss(total + guidance.weight * away, known.sum(), {"guidance": away.detach()})

    def validate(self, model: nn.Module, held_out: TokenBatches[Batch]) -> dict[str, float]:
        """Return nats per token, without label smoothing, and their exponential."""
        return self.nats(model, held_out)

    # ---- predictions

    def notes(self, assets: Tokenizers, record: Record, sources: list[SourceRow], number: int) -> list[str]:
        """Return the note on a text with tokens that the run does not know."""
        if UNK not in sources[number].ids:
            return []
        data, text = self.config.data, record["source"]
        encoding = assets.source_tokenizer.encode(text)
        unknown = [text[slice(*where)].strip() for token, where in zip(encoding.ids, encoding.offsets) if token == UNK]
        built_in = f"built-in phrases ({data.languages or LANGUAGES}: dates, amounts, units and lists)"
        pieces = assets.source_tokenizer.pieces
        return [unknown_note("tokens", unknown, len(encoding.ids), pieces, data.path or built_in)]

    def align(
        self,
        model: nn.Module,
        assets: Tokenizers,
        records: Sequence[Record],
        options: configs.AlignOptions,
        progress: Progress,
    ) -> list[WordAlignment]:
        """Return the word alignment of each pair, by the attention to the source."""
        return AlignmentReader(self, model, assets, options).align(records, progress)

    def pair_entries(self, paths: Sequence[str]) -> list[Pair | Fault]:
        """Return every line of two aligned files, or of one with both sides, as a pair or as a Fault.

        Raises:
            DataError: the files have different numbers of lines.
        """
        if len(paths) > 2:
            raise ConfigError(f"got {len(paths)} files, expected a file of sources and one of targets, or one of both.")
        entries = list(self._open(*paths).entries())
        for entry in entries:
            if isinstance(entry, Fault) and entry.kind == NO_PARTNER:
                raise DataError(str(entry))
        return entries

    def evaluate(
        self,
        model: nn.Module,
        assets: Tokenizers,
        records: Sequence[Record],
        options: TranslateEvaluateOptions,
        progress: Progress,
    ) -> Evaluation:
        """Return BLEU and chrF by sacrebleu, with their signatures, exact matches, and perplexity."""
        if options.tokenize is not None:
            overlap.check_tokenizer(options.tokenize)  # before the long work
        predictions = self.predict(model, assets, records, options, False, progress)
        produced, references = [one.output for one in predictions], [record["target"] for record in records]
        tokenizer = overlap.tokenizer_for(references, self._languages[1])
        if options.tokenize is not None:
            tokenizer = overlap.TokenizerChoice(options.tokenize, f"{options.tokenize}, as asked (tokenize)")
        bleu = overlap.bleu(produced, references, tokenize=tokenizer.name, lowercase=options.lowercase)
        chrf = overlap.chrf(produced, references, lowercase=options.lowercase)
        pairs = [Pair(record["source"], record["target"]) for record in records]
        examples = PairEncoder(*self.tokenizers(assets), None, self.copies)(pairs)
        longest = int(examples.lengths.max())
        batches: TokenBatches[Batch] = TokenBatches(examples, max_tokens=max(options.batch_tokens, longest))
        likelihood = self.likelihood(model, assets, batches, references, examples.target)
        return Evaluation(
            {
                "sentences": len(records),
                "bleu": bleu.score,
                "chrf": chrf.score,
                "exact": overlap.exact_matches(produced, references),
                **likelihood.to_metrics(),
            },
            {
                "bleu_tokenizer": tokenizer.note,
                "bleu_signature": bleu.signature,
                "chrf_signature": chrf.signature,
                **likelihood.notes(),
            },
        )


class _NormalPairs:
    """The pairs of a stream, in a normal form; can be iterated again and again."""

    def __init__(self, corpus: Corpus, form: NormalForm) -> None:
        self.corpus, self.form = corpus, form

    def __iter__(self) -> Iterator[Pair]:
        return (Pair(*(normalized(side, self.form) for side in pair)) for pair in self.corpus)


class _Side:
    """One side, or both, of sentence pairs, which may be too many to hold."""

    def __init__(self, pairs: Iterable[Pair], *columns: int) -> None:
        self.pairs, self.columns = pairs, columns

    def __iter__(self) -> Iterator[str]:
        return (pair[column] for column in self.columns for pair in self.pairs)


class PairEncoder:
    """Sentence pairs to ids; pairs with a side of more than ``longest`` tokens, or without a source, are left out.

    With ``longest`` None all pairs are kept.
    """

    def __init__(self, source: Tokenizer, target: Tokenizer, longest: int | None, copies: bool = False) -> None:
        self.source, self.target, self.longest, self.copies = source, target, longest, copies

    def __call__(self, pairs: Sequence[Pair]) -> PairExamples:
        """Return what is left of these pairs, which may be nothing."""
        return self.fitting(pairs)[0]

    def fitting(self, pairs: Sequence[Pair]) -> tuple[PairExamples, list[int]]:
        """Return what is left of these pairs, and their numbers."""
        if self.copies:
            return self._copied(pairs)
        examples = PairExamples.encode(pairs, self.source, self.target)
        if self.longest is None:
            return examples, list(range(len(pairs)))
        fits = np.flatnonzero((examples.lengths.max(axis=1) <= self.longest) & (examples.source.lengths > 0)).tolist()
        if len(fits) == len(pairs):
            return examples, fits
        sides = zip((examples.source, examples.target), (self.source, self.target))
        return PairExamples(*(Sequences((side[i] for i in fits), len(tokenizer)) for side, tokenizer in sides)), fits

    def _copied(self, pairs: Sequence[Pair]) -> tuple[CopyExamples, list[int]]:
        ids = CopyIds(self.source, self.target)
        rows = list(ids.sources(pair.source for pair in pairs))
        targets = list(ids.targets((pair.target for pair in pairs), rows))
        fits = [
            self.longest is None or (max(len(row.ids), len(target) + 2) <= self.longest and len(row.ids) > 0)
            for row, target in zip(rows, targets)
        ]
        kept = [number for number, fit in enumerate(fits) if fit]
        return CopyExamples([rows[i] for i in kept], [targets[i] for i in kept], len(self.target)), kept


def _check_data(data: DataConfig) -> None:
    if data.target is not None and data.columns is not None:
        raise ConfigError("data: two aligned files have no columns. Give one file, or leave columns out.")
    if data.path is None and data.stream:
        raise ConfigError("data.stream is for files, but data.path is not set. Name a file, or leave it out.")
    if data.valid_share + data.test_share >= 1:
        raise ConfigError(
            f"data.valid_share is {data.valid_share} and data.test_share is {data.test_share}, expected less than 1 "
            "together: nothing would be left to train on."
        )
    if data.stream and data.valid is None:
        raise ConfigError(
            "data.stream is set, but data.valid is not: a stream is not held in memory, so no part of it can be "
            "held out. Name held-out pairs in files of their own."
        )
    if data.stream and data.max_length > data.batch_tokens:
        raise ConfigError(
            f"data.max_length is {data.max_length}, more than data.batch_tokens = {data.batch_tokens}: a pair of a "
            "stream may then fit in no batch. Lower the one or raise the other."
        )


def _attention_loss(learned: TokenLoss, known: Tensor) -> Tensor | float:
    """Return the REINFORCE term of sampled attention, with the log-probabilities of the words as reward."""
    sampled = [weights.log_prob for weights in learned.attentions.values() if weights.log_prob is not None]
    if not sampled:
        return 0.0
    reward = learned.log_probs
    advantage = (reward - reward.sum() / known.sum().clamp_min(1)) * known
    # (B, T), or (B, heads, T): the heads' draws are independent.
    draws = (log_prob.reshape(len(known), -1, known.shape[1]).sum(dim=1) for log_prob in sampled)
    return -sum((advantage * log_prob).sum() for log_prob in draws)
