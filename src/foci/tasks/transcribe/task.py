"""Speech recognition: trained on recordings with transcripts; every word comes with its times and its probability.

Recordings of any length are transcribed: long ones are cut at their silences. Endless ones (streaming) are not: the
encoders read both ways, so that a recording must have ended before its first word is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

import numpy as np
import torch
from torch import Tensor, nn

from foci.data import BOS, PAD, TokenBatches, Tokenizer
from foci.data.audio.augment import Masking, spec_augment
from foci.data.audio.features import normalized
from foci.data.audio.files import Utterance, same_samples, write_sound
from foci.data.builtin import morse
from foci.data.splits import Parts, file_key
from foci.errors import ConfigError, DataError
from foci.functional import ctc
from foci.metrics.attention import diagonality
from foci.metrics.calibration import Odds
from foci.metrics.error_rates import character_errors, differences, sentence_errors, word_errors, words_note
from foci.models.recognizer import Recognizer, RecognizerLoss
from foci.scripts import join_texts, lowered
from foci.tasks.frame.file_task import FileTask, shortened
from foci.tasks.frame.probing.sound import erasable_sound
from foci.tasks.frame.probing.traces import TracedPass
from foci.tasks.frame.scores import calibration_table
from foci.tasks.frame.task import Evaluation, Field, Log, Prediction, Progress, Record, Shard, Splits, Table
from foci.tasks.transcribe.answer import align, no_prediction, prediction_of, speech_trace
from foci.tasks.transcribe.config import (
    BUILT_IN,
    TranscribeConfig,
    TranscribeEvaluateOptions,
    TranscribeOptions,
    TranscriptSearchOptions,
)
from foci.tasks.transcribe.data import (
    FeatureSet,
    ShortFirstBatches,
    SpeechAssets,
    SpeechBatch,
    SpeechExamples,
    SpeechReader,
    compute_features,
    filter_bank,
    is_feature_file,
    usable_utterances,
)
from foci.tasks.transcribe.reader import beside_manifest, read_manifest, usual_columns
from foci.tasks.transcribe.search import answer_records, one_row, search
from foci.tasks.transcribe.words import WordOutcomes
from foci.training.objective import Batches, Loss
from foci.weights import Weights

_DIAGONAL = 0.7
"""Below this correlation of tokens and times an attention has not found the order of the sounds."""


class Transcribe(FileTask):
    """The speech recognition task."""

    name: ClassVar[str] = "transcribe"
    Config: ClassVar[type[Any]] = TranscribeConfig
    Options: ClassVar[type[Any]] = TranscribeOptions
    EvaluateOptions: ClassVar[type[Any]] = TranscribeEvaluateOptions
    Assets: ClassVar[type[Any]] = SpeechAssets
    inputs: ClassVar[tuple[Field, ...]] = (Field("audio", "audio"),)
    targets: ClassVar[tuple[Field, ...]] = (Field("text", "sentence"),)
    score: ClassVar[Literal["probability", "log-probability"]] = "log-probability"
    unit: ClassVar[str] = "tokens"
    lines: ClassVar[bool] = True
    metrics: ClassVar[Mapping[str, Literal["lower", "higher"]]] = {"loss": "lower", "cer": "lower", "wer": "lower"}

    noun: ClassVar[str] = "utterances"
    about: ClassVar[str] = "sound"
    builtin_sizes: ClassVar[tuple[int, int, int]] = (BUILT_IN, 100, 100)

    config: TranscribeConfig
    _step = 1

    # ---- data

    @cached_property
    def reader(self) -> SpeechReader:
        """Turns recordings into features."""
        features, data = self.config.features, self.config.data
        return SpeechReader(filter_bank(features), features.deltas, features.upsample, data.max_seconds)

    @cached_property
    def _features(self) -> dict[str, FeatureSet]:
        """The features of splits that were read."""
        return {}

    def read_parts(self, log: Log) -> Parts:
        """Read and split the manifests; leave out recordings to train on and validate that cannot be used by headers.

        Those to evaluate stay: long ones are cut at silences, and those that cannot be read count as errors.
        """
        parts = super().read_parts(log)
        origin = cast("str", self.config.data.path)
        train, valid = (
            usable_utterances(utterances, self.reader, log, path)
            for utterances, path in ((parts.train, origin), (parts.valid, self.config.data.valid or origin))
        )
        return Parts(train, valid, parts.test)

    def read_file(self, path: str, log: Log | None = None) -> list[Utterance]:
        """Read a manifest."""
        return read_manifest(path, self.config.data.columns)

    def key_column(self) -> str | int:
        """Return the column of the recordings."""
        data = self.config.data
        return (data.columns or usual_columns(Path(cast("str", data.path))))[0]

    def located(self, name: str) -> str:
        """Return the path of a recording that the manifest names."""
        return beside_manifest(Path(cast("str", self.config.data.path)), name)

    def key(self, example: Utterance) -> str:
        """Return the content of the recording."""
        return file_key(example.audio)

    def twins(self, examples: Sequence[Utterance]) -> list[str | None]:
        """Return the samples of recordings that differ in their bytes alone."""
        return same_samples([one.audio for one in examples])

    def show(self, example: Utterance) -> str:
        """Return the name of the recording and its transcript."""
        name = example.audio if morse.is_morse(example.audio) else Path(example.audio).name
        return shortened(f"{name}: {example.text}")

    def sizes(self, builtin: int) -> tuple[int, int, int]:
        """Return how many messages each part has."""
        held_out = min(self.builtin_sizes[1], max(builtin // 3, 7))
        return builtin, held_out, held_out

    def read_builtin(self, size: int, part: str) -> list[Utterance]:
        """Return messages in Morse code."""
        return morse.morse_messages(part, size, most_words=self.config.data.morse_words)

    def _read_features(self, split: str, utterances: Sequence[Utterance], log: Log) -> FeatureSet:
        """Read the recordings of a split, once."""
        if split not in self._features:
            data = self.config.data
            speeds = data.speeds if split == "train" else (1.0,)
            self._features[split] = compute_features(utterances, self.reader, log, data.path or "Morse code", speeds)
        return self._features[split]

    def _text(self, text: str) -> str:
        """Return a transcript in the chosen case, with single spaces."""
        case = self.config.tokenizer.case
        cased = text.upper() if case == "upper" else lowered(text) if case == "lower" else text
        return " ".join(cased.split())

    def _learned(self, text: str) -> str:
        """Return a transcript as it is split: a word is the same token at the beginning as after other words."""
        return self._text(text) if self.config.tokenizer.kind == "characters" else f" {self._text(text)}"

    def assets(self, splits: Splits, log: Log) -> SpeechAssets:
        """Compute all features of the training data; learn the tokenizer from its transcripts."""
        read = self._read_features("train", cast("list[Utterance]", splits.train), log)
        texts = [self._learned(one.text) for one in read.utterances]
        tokenizer = Tokenizer.train(texts, self.config.tokenizer.kind, self.config.tokenizer.size)
        seconds = sum(map(len, read.features)) * self.config.features.hop_ms / 1000
        log(
            f"{len(tokenizer):,} tokens ({self.config.tokenizer.kind}); {read.features[0].shape[1]} features per "
            f"frame, {seconds / 60:.1f} minutes to train on"
        )
        heard = not any(is_feature_file(one.audio) for one in read.utterances)
        bank = self.reader.bank if heard else None
        return SpeechAssets.from_features(tokenizer, read.features, self.config.features.hop_ms, bank)

    def model(self, assets: SpeechAssets) -> nn.Module:
        """Build the model for these features and tokens."""
        return Recognizer(assets.input_dim, len(assets.tokenizer), self.config.model)

    def batches(self, splits: Splits, assets: SpeechAssets, shard: Shard, log: Log) -> Batches:
        """Batch the training utterances; those that are too short for their transcripts are left out."""
        data = self.config.data
        read = self._read_features("train", cast("list[Utterance]", splits.train), log)
        return ShortFirstBatches(
            self._examples(read, assets, self._long_enough(read, assets, log)),
            short_first=data.sort_by_length_epochs,
            **self.batching(shard, data.batch_frames, data.batch_size),
        )

    def held_out(self, splits: Splits, assets: SpeechAssets, log: Log) -> _HeldOut:
        """Batch the validation utterances."""
        read = self._read_features("valid", cast("list[Utterance]", splits.valid), log)
        examples = self._examples(read, assets)
        longest = int(examples.lengths.max())
        batches = TokenBatches(examples, max_tokens=max(self.config.data.batch_frames, longest))
        return _HeldOut(assets, list(batches.epoch(0)), log)

    def _examples(self, read: FeatureSet, assets: SpeechAssets, kept: Sequence[int] | None = None) -> SpeechExamples:
        """Return the utterances with these numbers. Default: all."""
        kept = range(len(read.features)) if kept is None else kept
        targets = list(assets.tokenizer.encode_many(self._learned(read.utterances[i].text) for i in kept))
        how, statistics = self.config.features.normalize, assets.features
        features = [normalized(read.features[i], how, statistics) for i in kept]
        return SpeechExamples(features, targets, len(assets.tokenizer))

    def _long_enough(self, read: FeatureSet, assets: SpeechAssets, log: Log) -> list[int]:
        """Return the numbers of the utterances that CTC can be trained with; the others are counted and one is named.

        Those that are validated with stay: a recognizer that cannot give a transcript makes errors in it.
        """
        if not self.config.model.ctc:
            return list(range(len(read.features)))
        factor = self.config.model.encoder.subsampling_factor
        targets = list(assets.tokenizer.encode_many(self._learned(one.text) for one in read.utterances))
        positions = [-(-len(one) // factor) for one in read.features]
        fits = [ctc.shortest_path(target) <= count for target, count in zip(targets, positions)]
        if not any(fits):
            origin = self.config.data.path or "Morse code"
            raise DataError(
                f"{origin}, line 1: all utterances have more tokens than positions of {factor} frames. Lower "
                "model.encoder.subsampling_factor, or check that transcripts belong to their recordings."
            )
        if not all(fits):
            first = self.show(read.utterances[fits.index(False)])
            log(
                f"{fits.count(False):,} of {len(fits):,} utterances have more tokens than positions of {factor} frames "
                f"(model.encoder.subsampling_factor) and are left out; the first is {first}"
            )
        return [number for number, enough in enumerate(fits) if enough]

    # ---- loss and metrics

    def begin_step(self, step: int) -> None:
        """Remember the step, which decides how much CTC counts: in all batches of a step the same."""
        self._step = step

    def loss(self, model: nn.Module, batch: SpeechBatch) -> Loss:
        """Return the losses of decoder and CTC, mixed by the schedule, summed over the tokens."""
        masking = Masking(**vars(self.config.spec_augment))
        features = batch.features
        if masking.feature_masks or masking.time_masks:
            features = spec_augment(features, batch.lengths, masking)
        found: RecognizerLoss = model(features, batch.lengths, batch.target, self.config.label_smoothing)
        total = self._mixed(found, self.ctc_weight(self._step - 1))
        if model.training:
            _plain(model).steps.fill_(self._step)
        metrics = {}
        if found.attention is not None and found.ctc is not None:
            metrics = {"attention": found.attention.loss.detach(), "ctc": found.ctc.detach()}
        return Loss(total, (batch.target[:, 1:] != PAD).sum(), metrics)

    def ctc_weight(self, step: int) -> float:
        """Return the share of CTC in the loss at a step."""
        schedule = self.config.ctc
        return schedule.weight + (schedule.final_weight - schedule.weight) * min(step / schedule.steps, 1.0)

    def _mixed(self, found: RecognizerLoss, weight: float) -> Tensor:
        if found.ctc is None and found.attention is not None:
            return found.attention.loss
        if found.attention is None and found.ctc is not None:
            return found.ctc
        if found.attention is None or found.ctc is None:
            raise ConfigError("transcribe: the model gave no loss, expected that of a decoder or of CTC.")
        return (1 - weight) * found.attention.loss + weight * found.ctc

    def validate(self, model: nn.Module, held_out: _HeldOut) -> dict[str, float]:
        """Return nats per token, the error rates of greedy search, and how diagonal the attention is.

        The losses of decoder and CTC are mixed as at the end of the training, so that validations can be compared.
        """
        device = next(model.parameters()).device
        loss, count, step = 0.0, 0, int(_plain(model).steps)
        references: list[str] = []
        transcripts: list[str] = []
        lines: list[float] = []
        heard = WordOutcomes()
        for batch in held_out.batches:
            features, lengths, target = (tensor.to(device) for tensor in batch)
            found: RecognizerLoss = model(features, lengths, target)
            loss += float(self._mixed(found, self.config.ctc.final_weight).detach())
            count += int((target[:, 1:] != PAD).sum())
            if found.attention is not None:
                lines += diagonalities(found.attention.attentions["decoder.cross"], target)
            encoded = _plain(model).encode(features, lengths)
            hypotheses = search(_plain(model), encoded, TranscriptSearchOptions(beam_size=1))
            transcripts += [held_out.assets.tokenizer.decode(one[0].tokens).strip() for one in hypotheses]
            texts = [held_out.assets.tokenizer.decode(row).strip() for row in target.tolist()]
            references += texts
            for row, (text, one) in enumerate(zip(texts, hypotheses)):
                alone = one_row(encoded, row)
                heard.add(align(_plain(model), held_out.assets, alone, one[0], self._seconds(model)).words, text)
        odds = {f"calibration/word_{name}": value for name, value in heard.fit()._asdict().items()}
        metrics = {"loss": loss / max(count, 1), **_rates(references, transcripts), **odds}
        if lines:
            metrics["diagonality"] = float(np.mean(lines))
            notice = alignment_notice(self.config, step, metrics["diagonality"])
            if notice is not None and not held_out.noticed:
                held_out.noticed.append(step)
                held_out.log(notice)
        return metrics

    def _seconds(self, model: nn.Module) -> float:
        """Return how long a position of the encoder lasts."""
        return _plain(model).subsampling_factor * self.config.features.hop_ms / 1000

    @property
    def odds(self) -> Odds:
        """How the probabilities of words are calibrated."""
        return Odds(*(self.calibration.get(f"word_{name}", value) for name, value in Odds()._asdict().items()))

    # ---- predictions

    def empty_details(self, assets: SpeechAssets) -> dict[str, Any]:
        """Return no words, and the other names alone."""
        return {"text": "", "words": [], **dict.fromkeys(("seconds", "log_prob", "finished", "no_speech"))}

    def predict(
        self,
        model: nn.Module,
        assets: SpeechAssets,
        records: Sequence[Record],
        options: TranscribeOptions,
        trace: bool,
        progress: Progress,
    ) -> list[Prediction]:
        """Transcribe; each word has its times and its probability. A recording that cannot be used has a note."""
        found: dict[int, Prediction] = {}
        recognizer, settings, odds = _plain(model), self.config.features, self.odds
        shown = options.segment if trace else None
        answered = answer_records(recognizer, assets, settings, records, options, progress, shown=shown)
        for number, answers in answered:
            record = records[number]
            if isinstance(answers, DataError):
                found[number] = no_prediction(record, answers, options)
            else:
                found[number] = prediction_of(recognizer, assets, settings, record, answers, options, odds, trace=trace)
        return [found[number] for number in range(len(records))]

    def traced_pass(self, model: nn.Module, assets: SpeechAssets, record: Record) -> TracedPass:
        """Return how the model hears the first segment of a recording; the answer is its transcript, token by token.

        A tenth of a second is erased at a time, since neighboring frames carry the same.
        """
        recognizer, settings, options = _plain(model), self.config.features, self.Options()
        ((_, answers),) = answer_records(
            recognizer, assets, settings, [record], options, lambda done: None, shown=options.segment
        )
        if isinstance(answers, DataError):
            raise answers
        first, seconds = answers.segments[0], self._seconds(model)
        heard = align(recognizer, assets, first.encoded, first.hypotheses[0], seconds)
        trace = speech_trace(recognizer, assets, first, heard, seconds, settings.sample_rate)
        frames = normalized(first.segment.features, settings.normalize, assets.features)
        features = torch.from_numpy(np.ascontiguousarray(frames)).to(next(model.parameters())).unsqueeze(0)
        sound, groups = erasable_sound(features, trace.axes["source"], recognizer.subsampling_factor)
        target = torch.tensor([[BOS, *heard.hypothesis.tokens]], device=features.device)
        lengths = torch.tensor([features.shape[1]], device=features.device)

        def forward(features: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
            encoded = recognizer.encode(features, lengths)
            if recognizer.decoder is None:
                return recognizer.ctc_log_probs(encoded)
            return recognizer.teach(encoded, target).logits

        def probabilities(output: Tensor) -> Tensor:
            return output.float().softmax(dim=-1)

        count = len(answers.segments)
        notes = () if count == 1 else (f"{record['audio']}: only the first of {count} segments is probed",)
        inputs = (features, lengths, target)
        sources, grouped = {"source": sound}, {"source": groups}
        return TracedPass(inputs, sources, trace, probabilities, forward, grouped, answer="target", notes=notes)

    def names_inputs(self, options: TranscribeOptions) -> bool:
        """Return whether transcripts have the form of a file: CTM or captions."""
        return options.output_format != "text"

    def to_files(self, inputs: Sequence[Record], folder: Path) -> Sequence[Record]:
        """Write messages in Morse code as sound files."""
        found = []
        for number, record in enumerate(inputs, start=1):
            address = str(record["audio"])
            if morse.is_morse(address):
                address = str(write_sound(folder / f"morse-{number}.wav", morse.sound_of(address)))
            found.append({**record, "audio": address})
        return found

    # ---- evaluation

    def evaluate(
        self,
        model: nn.Module,
        assets: SpeechAssets,
        records: Sequence[Record],
        options: TranscribeEvaluateOptions,
        progress: Progress,
    ) -> Evaluation:
        """Return the error rates of words, characters and sentences, and the worst utterances with their errors."""
        transcripts = [""] * len(records)
        unreadable: dict[int, DataError] = {}
        silent, cut = 0, 0
        heard = WordOutcomes()
        answered = answer_records(_plain(model), assets, self.config.features, records, options, progress)
        for number, answers in answered:
            if isinstance(answers, DataError):
                unreadable[number] = answers
                continue
            best = [assets.tokenizer.decode(answer.hypotheses[0].tokens).strip() for answer in answers.segments]
            transcripts[number] = join_texts(best)
            spoken = [
                word
                for one in answers.segments
                for word in align(_plain(model), assets, one.encoded, one.hypotheses[0], self._seconds(model)).words
            ]
            heard.add(spoken, self._text(str(records[number]["text"])))
            silent += not any(answer.is_speech(options) for answer in answers.segments)
            cut += len(best) > 1
        if len(unreadable) == len(records):
            raise DataError(f"evaluate: none of {len(records)} recordings can be used; {unreadable[0]}")
        references = [self._text(str(record["text"])) for record in records]
        words, characters = word_errors(references, transcripts), character_errors(references, transcripts)
        metrics: dict[str, float | int] = {
            "utterances": len(records),
            "wer": words.rate,
            "cer": characters.rate,
            "sentence_errors": sentence_errors(references, transcripts),
            "words": words.hits + words.substitutions + words.deletions,
            "substitutions": words.substitutions,
            "deletions": words.deletions,
            "insertions": words.insertions,
        }
        notes = {"rates": "errors per word (wer) and character (cer) of the references, all utterances together; jiwer"}
        errors, bins = heard.measure(self.odds)
        metrics, notes = metrics | errors, notes | self.calibration_note()
        if says_little := words_note(references):
            notes["wer"] = says_little
        if unreadable:
            first = unreadable[min(unreadable)]
            metrics["unreadable"] = len(unreadable)
            notes["unreadable"] = (
                f"{len(unreadable)} of {len(records)} recordings cannot be used, and all their words count as deleted; "
                f"the first: {first}"
            )
        if silent:
            metrics["no_speech"] = silent
            notes["no_speech"] = (
                f"{silent} of {len(records)} recordings have a no-speech score above no_speech_threshold = "
                f"{options.no_speech_threshold:g}, and no transcript"
            )
        if cut:
            notes["cut"] = f"{cut} of {len(records)} recordings are longer than those of the training: cut at silences"
        worst = [
            (one.counts.errors, one.counts.hits + one.counts.substitutions + one.counts.deletions, one.alignment)
            for one in differences(references, transcripts, options.worst)
        ]
        tables = {"worst": Table(("errors", "words", "alignment"), tuple(worst))} if worst else {}
        tables["calibration"] = calibration_table(bins, "words")
        return Evaluation(metrics, notes, tables)


@dataclass(frozen=True)
class _HeldOut:
    """The validation utterances, and where to log warnings; ``noticed`` has the step of a warning that was logged."""

    assets: SpeechAssets
    batches: list[SpeechBatch]
    log: Log
    noticed: list[int] = field(default_factory=list)


def _plain(model: nn.Module) -> Recognizer:
    """Return the model itself, where it is wrapped for several processes."""
    return cast("Recognizer", getattr(model, "module", model))


def _rates(references: Sequence[str], transcripts: Sequence[str]) -> dict[str, float]:
    return {"cer": character_errors(references, transcripts).rate, "wer": word_errors(references, transcripts).rate}


def diagonalities(weights: Weights, target: Tensor) -> list[float]:
    """Return how diagonal the attention of each utterance is, EOS aside."""
    dense = weights.dense().float()
    dense = dense.mean(dim=1) if dense.dim() == 4 else dense
    lengths = (target != PAD).sum(dim=1) - 2
    return [diagonality(row[:length].cpu().numpy()) for row, length in zip(dense, lengths.tolist()) if length >= 3]


def alignment_notice(config: TranscribeConfig, step: int, diagonal: float) -> str | None:
    """Return a warning if the attention is not diagonal after ``step`` steps, with what to try; None if it is."""
    if step < config.diagonal_after or diagonal >= _DIAGONAL:
        return None
    attention = config.model.attention
    tries = []
    if not config.model.ctc:
        tries.append("train with CTC beside it (model.ctc=true)")
    elif config.ctc.weight < 0.5:
        tries.append("raise ctc.weight to 0.5 or more")
    if attention.score != "location_aware" or not attention.content:
        tries.append("use content and location (model.attention.score=location_aware, model.attention.content=true)")
    tries += [
        "train on shorter utterances first (data.max_seconds)",
        "lower training.learning_rate or lengthen training.warmup",
        "check that transcripts belong to their recordings",
    ]
    return (
        f"after {step:,} steps the attention does not follow the sound (the correlation of tokens and times is "
        f"{diagonal:.2f}, expected {_DIAGONAL} or more). To try: {'; '.join(tries)}"
    )
