"""Sequence labeling: named entities, slots, parts of speech; every span comes with a probability."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, cast

from torch import Tensor, nn
from torch.nn import functional as F

from foci.data import TokenBatches
from foci.data.batching import on_device
from foci.data.lines import Fault
from foci.data.splits import text_key
from foci.errors import ConfigError, DataError
from foci.functional import crf
from foci.metrics.calibration import calibration, expected_calibration_error
from foci.metrics.spans import Span, count_spans, macro_f1, micro
from foci.models.tagger import Tagger, TagScores
from foci.scripts import normalized
from foci.tasks.frame.baselines import most_frequent, most_frequent_by
from foci.tasks.frame.file_task import FileTask, log_labels, shortened
from foci.tasks.frame.notes import left_out, unknown_note
from foci.tasks.frame.prediction_loop import batch_of, batches_by_length, by_length, predict_in_batches
from foci.tasks.frame.probing.traces import FREQUENT, TracedPass, vector_source
from foci.tasks.frame.scores import calibration_table
from foci.tasks.frame.task import Evaluation, Field, Log, NamedAxes, Prediction, Progress, Record, Shard, Splits, Suited
from foci.tasks.frame.vocabulary import count_with_vectors, take_vectors
from foci.tasks.tag.answers import answer_of, is_plain, show, trace_of
from foci.tasks.tag.batches import LONGEST_WORD, Letters, TagBatch, TagExamples
from foci.tasks.tag.builtin import carriers
from foci.tasks.tag.calibration import Outcomes, TagCalibration
from foci.tasks.tag.config import BUILT_IN, SpanOptions, TagConfig, TagEvaluateOptions, TaggingConfig, TagOptions
from foci.tasks.tag.decoding import best_intent, chain_of, decode
from foci.tasks.tag.json_records import from_record, words_of_record
from foci.tasks.tag.lexicon import TagLexicon
from foci.tasks.tag.metrics import Gold, Tally, labels_table, strictly
from foci.tasks.tag.reader import read_tagged, read_words
from foci.tasks.tag.schemes import PLAIN
from foci.tasks.tag.sentences import TaggedSentence, from_words
from foci.tasks.tag.splitting import LOW, agreement, learn_rule, low_note, said
from foci.training.objective import Batches, Loss

_EPOCHS = 10
"""Epochs that the tagger is trained for by default."""
_LEAST_STEPS = 1500
"""Steps of them at least, of little data that is seen more often."""


class Tag(FileTask):
    """The sequence labeling task."""

    name: ClassVar[str] = "tag"
    Config: ClassVar[type[Any]] = TagConfig
    Options: ClassVar[type[Any]] = TagOptions
    EvaluateOptions: ClassVar[type[Any]] = TagEvaluateOptions
    Assets: ClassVar[type[Any]] = TagLexicon
    inputs: ClassVar[tuple[Field, ...]] = (Field("text", "sentence"),)
    further: ClassVar[tuple[str, ...]] = ("words",)
    as_given: ClassVar[tuple[str, ...]] = ("text", "words")
    targets: ClassVar[tuple[Field, ...]] = (Field("spans", "list"), Field("intent", "label", required=False))
    score: ClassVar[Literal["probability", "log-probability"]] = "probability"
    unit: ClassVar[str] = "sentences"
    baseline_types: ClassVar[Mapping[str, Any]] = {"tag": str, "words": dict[str, str]}
    metrics: ClassVar[Mapping[str, Literal["lower", "higher"]]] = {
        "loss": "lower",
        "f1": "higher",
        "accuracy": "higher",
        "exact": "higher",
    }

    noun: ClassVar[str] = "sentences"
    builtin_sizes: ClassVar[tuple[int, int, int]] = (BUILT_IN, 300, 500)

    config: TagConfig

    # ---- data

    def read(self, log: Log) -> Splits:
        """Read, check and split the sentences."""
        splits = super().read(log)
        return splits._replace(test=[sentence.to_record() for sentence in splits.test])

    def read_part(self, part: str, path: str, log: Log) -> list[TaggedSentence]:
        """Read the sentences of a part; those to train on may have their tags and intents in other files."""
        data = self.config.data
        return self.read_file(path, log, data.tags, data.intents) if part == "train" else self.read_file(path, log)

    def read_records(self, paths: Sequence[str]) -> Sequence[Record]:
        """Read sentences in the form of the training data; aligned files come as words, tags and, if any, intents."""
        data = self.config.data
        if data.tags is None or all(Path(path).is_dir() for path in paths):
            return [sentence.to_record() for path in paths for sentence in self.read_file(path)]
        each = 2 if data.intents is None else 3
        if len(paths) % each:
            raise ConfigError(
                f"{len(paths)} files are given, expected {each} at a time, as in training: words, tags"
                f"{'' if each == 2 else ' and intents'}."
            )
        groups = [paths[start : start + each] for start in range(0, len(paths), each)]
        return [
            sentence.to_record()
            for words, tags, *intents in groups
            for sentence in self.read_file(words, None, tags, intents[0] if intents else None)
        ]

    def read_file(
        self, path: str, log: Log | None = None, tags: str | None = None, intents: str | None = None
    ) -> list[TaggedSentence]:
        """Read a file with words and tags, which may be in other files, or a folder."""
        data = self.config.data
        found = read_tagged(
            path, tags=tags, intents=intents, columns=data.columns, names=data.tag_names, rule=data.words
        )
        self.config = replace(self.config, data=replace(data, words=found.rule))  # further files are read alike
        for note in found.notes:
            if log is not None:
                log(note)
        return found.sentences

    def key_column(self) -> str:
        """Return the field of a JSONL file."""
        return "text"

    def key(self, example: TaggedSentence) -> str:
        """Return the text: equal ones are never in two parts."""
        return text_key(example.text)

    def show(self, example: TaggedSentence) -> str:
        """Return the sentence with its labels."""
        return shortened(show(example))

    def select(self, train: list[TaggedSentence], log: Log) -> list[TaggedSentence]:
        """Leave out sentences of too many words, and log the labels of the others."""
        data = self.config.data
        short = [sentence for sentence in train if len(sentence.words) <= data.max_words]
        if len(short) < len(train):
            log(f"{len(train) - len(short):,} sentences have more than {data.max_words} words and are not trained on")
            if not short:
                raise DataError(
                    f"{data.path}, line 1: all sentences have more than data.max_words = {data.max_words} words."
                )
        log_labels((span.label for sentence in short for span in sentence.spans), "labels", log)
        return short

    def read_builtin(self, size: int, part: str) -> list[TaggedSentence]:
        """Return carrier sentences with dates, amounts, units and lists."""
        return carriers(self.config.data.language, split=part, size=size)

    def word_rule(self, train: Sequence[TaggedSentence], log: Log) -> str:
        """Return the rule of built-in sentences; that of a file was learned when it was read."""
        return "unicode"

    def _words(self, sentence: TaggedSentence) -> list[str]:
        """Return the words in the normal form of the run."""
        return [normalized(word, self.config.data.normalize) for word in sentence.tokens]

    def suited(self, splits: Splits) -> dict[str, Suited]:
        """Return by when the learning rate falls to 0: a constant one ends further from the optimum."""
        training, count, size = self.config.training, len(list(splits.train)), self.config.data.batch_size
        chosen = {"training.schedule": Suited("cosine", "the learning rate falls to 0 until the training ends")}
        steps = training.max_steps
        if steps is None and training.time_limit is None:
            epoch = math.ceil(count / size)
            most = (training.max_epochs or _EPOCHS) * epoch
            steps = min(max(_LEAST_STEPS, _EPOCHS * epoch), most)
            about = f"{steps / epoch:.0f} epochs of {count:,} sentences, {size} per batch"
            chosen["training.max_steps"] = Suited(steps, about)
        if steps is not None and training.warmup > steps // 10:
            chosen["training.warmup"] = Suited(steps // 10, f"a tenth of training.max_steps = {steps:,}")
        return chosen

    def assets(self, splits: Splits, log: Log) -> TagLexicon:
        """Count words and letters, and list labels and intents."""
        sentences: list[TaggedSentence] = list(splits.train)
        counted = count_with_vectors(self.config.vocabulary, [self._words(sentence) for sentence in sentences], 1)
        letters = Letters.count(word for sentence in sentences for word in self._words(sentence))
        labels = tuple(sorted({span.label for sentence in sentences for span in sentence.spans}))
        intents = tuple(sorted({sentence.intent for sentence in sentences if sentence.intent}))
        plain = all(is_plain(sentence) for sentence in sentences)
        if not intents and self.config.tagging.intent_weight != TaggingConfig.intent_weight:
            raise ConfigError(
                f"tagging.intent_weight is {self.config.tagging.intent_weight:g}, but no sentence has an intent. "
                "Leave it out, or name the intents (data.intents)."
            )
        if not labels:
            raise DataError(f"{self.config.data.path}, line 1: no sentence has a span, expected labels to learn.")
        log(
            f"{len(labels)} labels, {len(intents)} intents; {counted.trained - 1:,} words with a learned vector, "
            f"{len(letters):,} letters"
        )
        scheme = PLAIN if plain else self.config.tagging.scheme
        found = agreement(self.splitter.rule, sentences)
        best = learn_rule(sentences) if found.words < LOW else None
        for line in said(found, sentences[0].given, best) if self.config.data.path is not None else ():
            log(line)
        words = counted.vocabulary, counted.trained, counted.vector_dim
        return TagLexicon(*words, letters, labels, intents, scheme, found.words)

    def count_baselines(self, splits: Splits) -> dict[str, Any]:
        """Return the most frequent tag of all words, and that of each word which has another one."""
        scheme = PLAIN if all(map(is_plain, splits.train)) else self.config.tagging.scheme
        pairs = [
            pair for one in splits.train for pair in zip(one.tokens, Gold.from_sentence(one, scheme).tags, strict=True)
        ]
        majority = most_frequent(tag for _, tag in pairs)
        return {"tag": majority, "words": {w: tag for w, tag in most_frequent_by(pairs).items() if tag != majority}}

    def model(self, assets: TagLexicon) -> nn.Module:
        """Build the model for these words, letters, tags and intents."""
        return Tagger(
            len(assets.vocabulary),
            assets.trained,
            assets.vector_dim,
            len(assets.letters),
            len(assets.tags),
            len(assets.intents),
            assets.allowed() if self.config.tagging.constrained else None,
            self.config.model,
        )

    def initialize(self, model: nn.Module, assets: TagLexicon, log: Log) -> None:
        """Take over the word vectors of a file, if one is named."""
        if (path := self.config.vocabulary.vectors) is not None:
            weight = model.get_parameter("vectors.weight")
            take_vectors(weight, path, assets.vocabulary, log, assets.trained)

    def named_axes(self, assets: TagLexicon) -> NamedAxes:
        """Return which rows of the weights are words, letters, tags and intents."""
        words, tags, intents = assets.vocabulary.names, assets.tags, assets.intents
        return {
            "embedding.weight": ([*words[: assets.trained], "<unknown>"],),
            "vectors.weight": (words,),
            "spelling.table.weight": (["<pad>", "<unknown>", *assets.letters.known],),
            "output.weight": (tags,),
            "output.bias": (tags,),
            "crf.transitions": (tags, tags),
            "crf.start": (tags,),
            "crf.end": (tags,),
            "intent_output.weight": (intents,),
            "intent_output.bias": (intents,),
        }

    def batches(self, splits: Splits, assets: TagLexicon, shard: Shard, log: Log) -> Batches:
        """Encode and batch the training sentences."""
        options = self.batching(shard, self.config.data.batch_tokens, self.config.data.batch_size)
        return TokenBatches(self._examples(list(splits.train), assets), **options)

    def held_out(self, splits: Splits, assets: TagLexicon, log: Log) -> _HeldOut:
        """Encode and batch the validation sentences."""
        examples = self._examples(splits.valid, assets)
        gold = [Gold.from_sentence(sentence, assets.scheme) for sentence in splits.valid]
        return _HeldOut(assets, list(batches_by_length(examples, self.config.data.batch_tokens)), gold)

    def _examples(self, sentences: Sequence[TaggedSentence], assets: TagLexicon) -> TagExamples:
        number = {tag: place for place, tag in enumerate(assets.tags)}
        intent = {name: place for place, name in enumerate(assets.intents)}
        # A label that was not trained has no tag: in the loss its words have the first one, its span counts as missed.
        tags = [[number.get(tag, 0) for tag in Gold.from_sentence(one, assets.scheme).tags] for one in sentences]
        return TagExamples(
            [self._words(one) for one in sentences],
            tags,
            [intent.get(one.intent, -1) for one in sentences],
            assets.vocabulary,
            assets.letters,
        )

    # ---- loss and metrics

    def loss(self, model: nn.Module, batch: TagBatch) -> Loss:
        """Return minus the log-likelihood of tags and intents, summed over the sentences."""
        total, of_tags = self._losses(model(batch.words, batch.letters, batch.spelt), batch)
        return Loss(total, len(batch.words), {"tags": of_tags.detach()})

    def _losses(self, scores: TagScores, batch: TagBatch) -> tuple[Tensor, Tensor]:
        """Return the weighted sum of the losses of tags and of intents, and that of tags alone."""
        valid = batch.words > 0
        if self.config.model.output == "crf":
            of_tags = -crf.log_likelihood(*chain_of(scores), valid, batch.tags).sum()
        else:
            of_tags = F.cross_entropy(scores.emissions.float()[valid], batch.tags[valid], reduction="sum")
        if scores.intents.shape[1] == 0:
            return of_tags, of_tags
        of_intents = F.cross_entropy(scores.intents.float(), batch.intents, ignore_index=-1, reduction="sum")
        return of_tags + self.config.tagging.intent_weight * of_intents, of_tags

    def validate(self, model: nn.Module, held_out: _HeldOut) -> dict[str, float]:
        """Return nats per sentence, span F1, the share of right tags, that of sentences with all of them right, and
        how to calibrate."""
        assets = held_out.assets
        tally, outcomes, loss = Tally(assets.scheme), Outcomes(assets), 0.0
        for batch, indices in held_out.batches:
            moved, scores = _scored(model, batch)
            loss += float(self._losses(scores, moved)[0])
            for i, one in zip(indices, decode(scores, moved.words > 0, assets, 1)):
                tally.add(held_out.gold[i], one.sequences[0].tags, best_intent(one, assets))
                outcomes.add(one, held_out.gold[i])
        fitted = {f"calibration/{name}": value for name, value in outcomes.fit().to_metrics().items()}
        return {"loss": loss / tally.sentences, **tally.metrics(), **fitted}

    # ---- predictions

    def empty_details(self, assets: TagLexicon) -> dict[str, Any]:
        """Return no spans and no words, and no intent where the run has intents."""
        return {"spans": [], "words": [], **({"intent": "", "intent_probabilities": {}} if assets.intents else {})}

    def as_input(self, value: Any) -> Any:
        """Return a sentence that came as words, alone or as ``words`` or ``tokens``, as a text with its words."""
        words = words_of_record(value)
        if words is None:
            return value
        if not isinstance(value, Mapping) or "text" not in value:
            sentence = from_words(words)
        else:
            sentence = from_record({"text": value["text"], "words": words, "spans": []}, self.splitter)
        return {"text": sentence.text, "words": [list(offsets) for offsets in sentence.words]}

    def read_inputs(self, path: Path) -> Iterator[tuple[Any, int] | Fault] | None:
        """Return the words of a file with columns, which is recognized."""
        return read_words(path, self.config.data.columns[0])

    def _sentence(self, record: Record, number: int) -> TaggedSentence:
        """A sentence; its words are found unless they are given."""
        try:
            return from_record(record, self.splitter)
        except DataError as error:
            raise DataError(f"entry {number}: {error}") from error

    def predict(
        self,
        model: nn.Module,
        assets: TagLexicon,
        records: Sequence[Record],
        options: TagOptions,
        trace: bool,
        progress: Progress,
    ) -> list[Prediction]:
        """Tag; each span has its probability given the sentence, and a trace the probability of each tag."""
        calibrated = TagCalibration.from_metrics(self.calibration)
        least = _least(options, calibrated)
        sentences = [
            self._sentence({"text": record["text"], "spans": [], "words": record.get("words")}, number)
            for number, record in enumerate(records)
        ]
        examples = self._examples(sentences, assets)

        def answer(numbers: Sequence[int]) -> Iterator[Prediction]:
            moved, scores = _scored(model, batch_of(examples, numbers))
            decoded = decode(scores, moved.words > 0, assets, options.n_best, least)
            for row, (number, raw) in enumerate(zip(numbers, decoded)):
                one = calibrated.apply(raw, assets)
                record, sentence = records[number], sentences[number]
                notes = self._notes(sentence, assets)
                answers = [
                    answer_of(record, sentence, sequence, one, assets, options.threshold, notes)
                    for sequence in one.sequences
                ]
                traced = trace_of(scores, row, sentence, one, assets, answers[0]) if trace else None
                yield replace(answers[0], trace=traced, alternatives=tuple(answers[1:]))

        batches = by_length(examples.words.lengths.tolist(), options.batch_tokens)
        return predict_in_batches(records, batches, answer, progress)

    def traced_pass(self, model: nn.Module, assets: TagLexicon, record: Record) -> TracedPass:
        """Return how the model reads a sentence, whose words are erased with their letters.

        The answer is the tag of each word; for the attention that reads what the intent is made of, the intent.
        """
        tagger = cast("Tagger", model)
        (prediction,) = self.predict(model, assets, [record], self.Options(), True, lambda done: None)
        sentence = self._sentence({"text": record["text"], "spans": [], "words": record.get("words")}, 0)
        if prediction.trace is None or not sentence.words:
            raise DataError("probe: the sentence has no words.")
        like = next(model.parameters())
        batch, known = (
            on_device(batch_of(TagExamples([words], None, [-1], assets.vocabulary, assets.letters), [0]), like.device)
            for words in (self._words(sentence), assets.vocabulary.words[: assets.trained - 1][:FREQUENT])
        )
        vectors = tagger.embed(batch.words, batch.letters, batch.spelt)
        words = vector_source(0, sentence.tokens, vectors, tagger.embed(known.words, known.letters, known.spelt))

        def tags(output: TagScores) -> Tensor:
            return crf.marginals(*chain_of(output), output.emissions.new_ones(output.emissions.shape[:2]) > 0)

        def intent(output: TagScores) -> Tensor:
            return output.intents.float().softmax(dim=-1)

        sources = {"words": words, "words, for the intent": words._replace(probabilities=intent)}
        reads = {"intent": "words, for the intent"}
        if not assets.intents:
            sources, reads = {"words": words}, {}
        return TracedPass(
            (vectors, batch.words > 0), sources, prediction.trace, tags, tagger.score, reads=reads, answer="words"
        )

    def _notes(self, sentence: TaggedSentence, assets: TagLexicon) -> list[str]:
        """Return notes on words in letters that the run does not know, not read whole, or split otherwise."""
        notes = []
        if not sentence.given:
            notes += self.splitter.note(sentence.text)
            if assets.agreement < LOW and self.splitter.rule != "spaces":
                notes.append(low_note(self.splitter.rule, assets.agreement))
        long = sum(len(word) > LONGEST_WORD for word in self._words(sentence))
        if long:
            notes.append(f"only the first {LONGEST_WORD} letters were read of {long} longer word{'s' * (long > 1)}")
        words = self._words(sentence)
        unknown = [word for word in words if word not in assets.vocabulary and not assets.letters.knows(word)]
        if unknown:
            data, known = self.config.data, assets.vocabulary.words[: assets.trained - 1]
            built_in = f"built-in sentences ({data.language})"
            notes.append(unknown_note("words", unknown, len(sentence.words), known, data.path or built_in))
        return notes

    def expected(self, record: Record) -> str:
        """Return the gold spans and intent as `predict` writes its own."""
        return show(from_record(record, self.splitter))

    # ---- evaluation

    def evaluate(
        self,
        model: nn.Module,
        assets: TagLexicon,
        records: Sequence[Record],
        options: TagEvaluateOptions,
        progress: Progress,
    ) -> Evaluation:
        """Return span F1 by two conventions, token accuracy, calibration, and metrics of each label."""
        calibrated, outcomes = TagCalibration.from_metrics(self.calibration), Outcomes(assets)
        least = _least(options, calibrated)
        sentences = [self._sentence(record, number) for number, record in enumerate(records)]
        tally, loss = Tally(assets.scheme), 0.0
        kept: list[list[Span]] = []
        strict: list[list[Span]] = []
        shares: list[float] = []
        for batch, indices in batches_by_length(self._examples(sentences, assets), options.batch_tokens):
            moved, scores = _scored(model, batch)
            loss += float(self._losses(scores, moved)[0])
            for i, one in zip(indices, decode(scores, moved.words > 0, assets, 1, least)):
                gold, best = Gold.from_sentence(sentences[i], assets.scheme), calibrated.apply(one, assets).sequences[0]
                shares += best.span_probabilities
                tally.add(gold, best.tags, best_intent(one, assets))
                outcomes.add(one, gold)
                sure = [span for span, share in zip(best.spans, best.span_probabilities) if share >= options.threshold]
                kept.append(sure)
                formed = sure if least is not None else strictly(best.tags, assets.scheme)
                strict.append([span for span in formed if span in sure])
            progress(len(indices))
        counts, strict_counts = count_spans(tally.gold, kept), count_spans(tally.gold, strict)
        raw_shares, right = outcomes.spans
        bins, raw_bins = (calibration(one, right, options.bins) for one in (shares, raw_shares))
        overall = micro(counts)
        metrics: dict[str, float | int] = {
            "sentences": tally.sentences,
            "words": tally.words,
            **tally.metrics(),
            "f1": overall.f1,
            "precision": overall.precision,
            "recall": overall.recall,
            "macro_f1": macro_f1(counts),
            "strict_f1": micro(strict_counts).f1,
            "strict_macro_f1": macro_f1(strict_counts),
            "ece": expected_calibration_error(bins),
            "ece_uncalibrated": expected_calibration_error(raw_bins),
            "loss": loss / tally.sentences,
        }
        metrics |= self._compared(sentences, assets)
        notes = {
            "baselines": "majority_…: each word has its most frequent tag of the training sentences",
            "f1_convention": "spans as conlleval reads tags (seqeval's default); first word, last word and label right",
            "strict_convention": f"only spans that are formed as {assets.scheme} has it (seqeval's strict mode)",
            **self.calibration_note(),
            **left_out(assets.labels, (label in counts for label in assets.labels), "label"),
        }
        if not shares:
            notes["ece_convention"] = "no span is predicted, so ece is 0 whatever the probabilities are"
        if least is not None:
            notes["select"] = (
                f"all spans of a probability of at least {options.threshold:g}; accuracy and exact: the best sequence"
            )
        if unknown := sum(span.label not in assets.labels for spans in tally.gold for span in spans):
            notes["unknown_labels"] = f"{unknown} gold spans have labels that were not trained, and count as missed"
        return Evaluation(
            metrics, notes, {"labels": labels_table(counts), "calibration": calibration_table(bins, "spans")}
        )

    def _compared(self, sentences: Sequence[TaggedSentence], assets: TagLexicon) -> dict[str, float]:
        """Return the metrics of giving each word its most frequent tag."""
        if self.baselines.keys() != self.baseline_types.keys():
            return {}
        words, majority, tally = self.baselines["words"], self.baselines["tag"], Tally(assets.scheme)
        for one in sentences:
            tally.add(Gold.from_sentence(one, assets.scheme), [words.get(word, majority) for word in one.tokens], "")
        found = tally.metrics()
        return {f"majority_{name}": found[name] for name in ("f1", "accuracy")}

    def draw(self, evaluation: Evaluation, path: Path) -> None:
        """Draw the calibration: observed against expected."""
        from foci.viz.figure.curves import plot_curves

        rows = [row[2:] for row in evaluation.tables["calibration"].rows if row[2] is not None]
        curves = {"observed": [tuple(row) for row in rows], "expected": [(row[0], row[0]) for row in rows]}
        plot_curves(curves, path, across="probability of a span", up="share that is right", title="calibration")


class _HeldOut(NamedTuple):
    """The validation sentences: batches with the numbers of their sentences, and what each should be given."""

    assets: TagLexicon
    batches: list[tuple[TagBatch, list[int]]]
    gold: list[Gold]


def _scored(model: nn.Module, batch: TagBatch) -> tuple[TagBatch, TagScores]:
    """The batch where the model is, and its scores."""
    moved = on_device(batch, next(model.parameters()).device)
    return moved, model(moved.words, moved.letters, moved.spelt)


def _least(options: SpanOptions, calibrated: TagCalibration) -> float | None:
    """The probability from which on spans are given, before it is calibrated; None for those of the best sequence."""
    if options.select == "sequence":
        return None
    if options.threshold <= 0:
        raise ConfigError(
            "select is 'probability', but threshold is 0, expected a probability from which on spans are given. Set "
            "threshold, such as 0.25."
        )
    return calibrated.span.before(options.threshold)
