"""Speech recognition: trained on recordings with transcripts; every word comes with its times and its probability.

Recordings of any length are transcribed: long ones are cut at their silences. Endless ones (streaming) are not: the
encoders read both ways, so that a recording must have ended before its first word is known.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, cast

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor, nn

from foci.data import BOS, EOS, PAD, TokenBatches, Tokeniser, morse
from foci.data.audio import Utterance, read_header, write_sound
from foci.data.audio_augment import Masking, spec_augment
from foci.data.audio_features import normalised, read_features
from foci.data.audio_manifest import read_manifest
from foci.data.audio_segments import cut_at_silences
from foci.data.documents import Document, parts
from foci.data.speech_batches import (
    Heard,
    ShortFirstBatches,
    SpeechBatch,
    SpeechExamples,
    SpeechReader,
    hear,
    is_feature_file,
    usable_utterances,
)
from foci.decoding import CtcJoinedDecoder, Hypothesis, Limits, SearchStart, beam, greedy
from foci.errors import ConfigError, DataError
from foci.functional import ctc
from foci.layers.interfaces import Encoded
from foci.metrics.attention import diagonality
from foci.metrics.error_rates import character_errors, differences, sentence_errors, word_errors
from foci.models.recogniser import Recogniser, RecogniserLoss
from foci.printable import printable
from foci.results import Weights
from foci.tasks.task import (
    Evaluation,
    Field,
    Log,
    Prediction,
    Progress,
    Record,
    Shard,
    Splits,
    Table,
    Task,
    by_length,
)
from foci.tasks.transcribe_assets import SpeechAssets
from foci.tasks.transcribe_config import (
    MORSE_FEATURES,
    SearchOptions,
    TranscribeConfig,
    TranscribeEvaluateOptions,
    TranscribeOptions,
)
from foci.tasks.transcribe_words import SpokenWord, disagreements, spoken_words, to_ctm, to_srt
from foci.training import Batches, Loss
from foci.viz.cells import Mark
from foci.viz.trace import Cells, Trace

BUILT_IN = 4000
"""How many Morse messages are trained on where no data is named."""
_HELD_OUT = 100
"""How many of them, at most, are validated and evaluated with."""
_LONGEST = 4 * 3600.0
"""Seconds of the longest recording that is transcribed."""
_DRAWN_BINS = 40
"""Mel filters of the spectrograms in pictures."""
_DIAGONAL = 0.7
"""Below this correlation of tokens and times an attention has not found the order of the sounds."""


class Transcribe(Task):
    """Speech recognition as a task of the frame; see `foci.tasks.task.Task`."""

    name: ClassVar[str] = "transcribe"
    Config: ClassVar[type[Any]] = TranscribeConfig
    Options: ClassVar[type[Any]] = TranscribeOptions
    EvaluateOptions: ClassVar[type[Any]] = TranscribeEvaluateOptions
    inputs: ClassVar[tuple[Field, ...]] = (Field("audio", "audio"),)
    targets: ClassVar[tuple[Field, ...]] = (Field("text", "sentence"),)
    score: ClassVar[Literal["probability", "log-probability"]] = "log-probability"
    unit: ClassVar[str] = "tokens"
    lines: ClassVar[bool] = True
    figures: ClassVar[Mapping[str, Literal["lower", "higher"]]] = {"loss": "lower", "cer": "lower", "wer": "lower"}
    flags: ClassVar[Mapping[str, str]] = {
        "data": "data.path",
        "valid": "data.valid",
        "test": "data.test",
        "morse": "data.morse",
        "rate": "features.rate",
        "tokeniser": "tokeniser.kind",
        "encoder": "model.encoder",
        "decoder": "model.decoder",
        "attention": "model.score",
        "preset": "model.preset",
    }
    demo: ClassVar[Mapping[str, Any]] = {
        "data": {"morse": BUILT_IN},
        "training": {"max_steps": 1500, "learning_rate": 3e-3, "schedule": "cosine", "warmup": 50, "valid_every": 300},
    }
    smallest: ClassVar[Mapping[str, Any]] = {
        "data": {"morse": 24, "morse_words": 1, "max_utterances": 8},
        "features": {**MORSE_FEATURES, "shift": 20.0},
        "model": {
            "hidden_dim": 16,
            "embedding_dim": 8,
            "attention_dim": 8,
            "width": 7,
            "num_layers": 1,
            "reduction": 2,
        },
        "training": {"max_steps": 8, "valid_every": 4, "warmup": 2, "learning_rate": 0.01, "metrics_every": 1},
    }

    config: TranscribeConfig

    # ---- data

    @cached_property
    def reader(self) -> SpeechReader:
        """Turns recordings into features."""
        features, data = self.config.features, self.config.data
        return SpeechReader(features.bank, features.deltas, features.upsample, data.max_seconds)

    @cached_property
    def _heard(self) -> dict[str, Heard]:
        """The features of splits that were read."""
        return {}

    def read(self, log: Log) -> Splits:
        """Read and check the manifests and the headers of all recordings."""
        data = self.config.data
        if data.path is not None and data.morse is not None:
            raise ConfigError("data: path and morse are both set, expected one of them.")
        if data.path is None:
            return self._built_in(log)
        utterances = self._read(data.path, log)
        found = parts(
            (Document(one.audio, "") for one in utterances),
            valid_share=0.0 if data.valid is not None else data.valid_share,
            test_share=0.0 if data.test is not None else data.test_share,
            seed=data.split_seed,
        )
        held = {name: {one.text for one in getattr(found, name)} for name in ("valid", "test")}
        valid, test = ([one for one in utterances if one.audio in held[name]] for name in ("valid", "test"))
        train = [one for one in utterances if one.audio not in held["valid"] | held["test"]]
        valid = valid if data.valid is None else self._read(data.valid, log)
        test = test if data.test is None else self._read(data.test, log)
        if not valid or not train:
            use = "train on" if valid else "validate"
            raise DataError(
                f"{data.path}, line 1: of {len(utterances)} utterances none is left to {use}. Give more of them, "
                f"change data.valid_share = {data.valid_share}, or name data.valid."
            )
        log(
            f"{len(train):,} utterances to train on, {len(valid):,} to validate, {len(test):,} to evaluate; the first "
            f"is {_quoted(utterances[0])}"
        )
        return Splits(train, valid, [one._asdict() for one in test])

    def read_records(self, paths: Sequence[str]) -> Sequence[Record]:
        """Read manifests in the form of the training data."""
        return [one._asdict() for path in paths for one in read_manifest(path, self.config.data.fields)]

    def _read(self, path: str, log: Log) -> list[Utterance]:
        return usable_utterances(read_manifest(path, self.config.data.fields), self.reader, log, path)

    def _built_in(self, log: Log) -> Splits:
        data = self.config.data
        if data.morse is None:
            log(f"no data is named: training on {BUILT_IN:,} messages in Morse code (data.morse)")
        made = data.morse or BUILT_IN
        held_out = min(_HELD_OUT, max(made // 3, 7))
        sizes = {"train": made, "valid": held_out, "test": held_out}
        found = {split: morse.morse_messages(split, size, most_words=data.morse_words) for split, size in sizes.items()}
        log(f"{made:,} messages in Morse code to train on, {held_out} to validate, {held_out} to evaluate")
        return Splits(found["train"], found["valid"], [one._asdict() for one in found["test"]])

    def _hear(self, split: str, utterances: Sequence[Utterance], log: Log) -> Heard:
        """Read the recordings of a split, once."""
        if split not in self._heard:
            data = self.config.data
            speeds = data.speeds if split == "train" else (1.0,)
            self._heard[split] = hear(utterances, self.reader, log, data.path or "Morse code", speeds)
        return self._heard[split]

    def _text(self, text: str) -> str:
        """Return a transcript in the chosen case, with single spaces."""
        case = self.config.tokeniser.case
        cased = text.upper() if case == "upper" else text.lower() if case == "lower" else text
        return " ".join(cased.split())

    def _learned(self, text: str) -> str:
        """Return a transcript as it is split: a word is the same token at the beginning as after other words."""
        return self._text(text) if self.config.tokeniser.kind == "characters" else f" {self._text(text)}"

    def assets(self, splits: Splits, log: Log) -> SpeechAssets:
        """Compute all features of the training data; learn the tokeniser from its transcripts."""
        heard = self._hear("train", cast("list[Utterance]", splits.train), log)
        texts = [self._learned(one.text) for one in heard.utterances]
        tokeniser = Tokeniser.train(texts, self.config.tokeniser.kind, self.config.tokeniser.size)
        seconds = sum(map(len, heard.features)) * self.config.features.shift / 1000
        log(
            f"{len(tokeniser):,} tokens ({self.config.tokeniser.kind}); {heard.features[0].shape[1]} features per "
            f"frame, {seconds / 60:.1f} minutes to train on"
        )
        return SpeechAssets.of(tokeniser, heard.features)

    def load_assets(self, read: Callable[[str], str]) -> SpeechAssets:
        """Read what `assets` has learned."""
        return SpeechAssets.from_files(read)

    def model(self, assets: SpeechAssets) -> nn.Module:
        """Build the model for these features and tokens."""
        return self.config.model.build(assets.input_dim, len(assets.tokeniser))

    def batches(self, splits: Splits, assets: SpeechAssets, shard: Shard, log: Log) -> Batches:
        """Batch the training utterances; those that are too short for their transcripts are left out."""
        data = self.config.data
        heard = self._hear("train", cast("list[Utterance]", splits.train), log)
        return ShortFirstBatches(
            self._examples(heard, assets, self._long_enough(heard, assets, log)),
            short_first=data.short_first,
            max_tokens=data.max_frames,
            max_examples=data.max_utterances,
            seed=self.config.training.seed,
            workers=data.workers,
            **shard._asdict(),
        )

    def held_out(self, splits: Splits, assets: SpeechAssets, log: Log) -> _HeldOut:
        """Batch the validation utterances."""
        heard = self._hear("valid", cast("list[Utterance]", splits.valid), log)
        examples = self._examples(heard, assets)
        longest = int(examples.lengths.max())
        batches = TokenBatches(examples, max_tokens=max(self.config.data.max_frames, longest))
        return _HeldOut(assets, list(batches.epoch(0)), log)

    def _examples(self, heard: Heard, assets: SpeechAssets, kept: Sequence[int] | None = None) -> SpeechExamples:
        """Return the utterances with these numbers; all unless given."""
        kept = range(len(heard.features)) if kept is None else kept
        targets = list(assets.tokeniser.encode_many(self._learned(heard.utterances[i].text) for i in kept))
        how, statistics = self.config.features.normalise, assets.statistics
        features = [normalised(heard.features[i], how, statistics) for i in kept]
        return SpeechExamples(features, targets, len(assets.tokeniser))

    def _long_enough(self, heard: Heard, assets: SpeechAssets, log: Log) -> list[int]:
        """Return the numbers of the utterances that CTC can be trained with; the others are counted and one is named.

        Those that are validated with stay: a recogniser that cannot give a transcript makes errors in it.
        """
        if not self.config.model.resolved.get("ctc", True):
            return list(range(len(heard.features)))
        reduction = int(self.config.model.resolved.get("reduction", 4))
        targets = list(assets.tokeniser.encode_many(self._learned(one.text) for one in heard.utterances))
        cells = [-(-len(one) // reduction) for one in heard.features]
        fits = [ctc.shortest_path(target) <= count for target, count in zip(targets, cells)]
        if not any(fits):
            origin = self.config.data.path or "Morse code"
            raise DataError(
                f"{origin}, line 1: all utterances have more tokens than cells of {reduction} frames. Lower "
                "model.reduction, or check that transcripts belong to their recordings."
            )
        if not all(fits):
            log(
                f"{fits.count(False):,} of {len(fits):,} utterances have more tokens than cells of {reduction} frames "
                f"(model.reduction) and are left out; the first is {_quoted(heard.utterances[fits.index(False)])}"
            )
        return [number for number, enough in enumerate(fits) if enough]

    # ---- loss and figures

    def loss(self, model: nn.Module, batch: SpeechBatch) -> Loss:
        """Return the losses of decoder and CTC, mixed by the schedule, summed over the tokens."""
        masking = Masking(**vars(self.config.masking))
        features = batch.features
        if masking.feature_masks or masking.time_masks:
            features = spec_augment(features, batch.lengths, masking)
        found: RecogniserLoss = model(features, batch.lengths, batch.target, self.config.label_smoothing)
        total = self._mixed(found)
        figures = {}
        if found.attention is not None and found.ctc is not None:
            figures = {"attention": found.attention.loss.detach(), "ctc": found.ctc.detach()}
        return Loss(total, (batch.target[:, 1:] != PAD).sum(), figures)

    def ctc_weight(self, step: int) -> float:
        """Return the share of CTC in the loss after so many steps."""
        schedule = self.config.ctc
        return schedule.weight + (schedule.final_weight - schedule.weight) * min(step / schedule.steps, 1.0)

    def _mixed(self, found: RecogniserLoss) -> Tensor:
        if found.ctc is None and found.attention is not None:
            return found.attention.loss
        if found.attention is None and found.ctc is not None:
            return found.ctc
        if found.attention is None or found.ctc is None:
            raise ConfigError("transcribe: the model gave no loss, expected that of a decoder or of CTC.")
        weight = self.ctc_weight(int(found.step))
        return (1 - weight) * found.attention.loss + weight * found.ctc

    def validate(self, model: nn.Module, held_out: _HeldOut) -> dict[str, float]:
        """Return nats per token, the error rates of greedy search, and how diagonal the attention is."""
        device = next(model.parameters()).device
        loss, count, step = 0.0, 0, 0
        said: list[str] = []
        heard: list[str] = []
        lines: list[float] = []
        for batch in held_out.batches:
            features, lengths, target = (tensor.to(device) for tensor in batch)
            found: RecogniserLoss = model(features, lengths, target)
            loss += float(self._mixed(found).detach())
            count += int((target[:, 1:] != PAD).sum())
            step = int(found.step)
            if found.attention is not None:
                lines += _diagonalities(found.attention.attentions["decoder.cross"], target)
            encoded = _plain(model).encode(features, lengths)
            hypotheses = _search(_plain(model), encoded, SearchOptions(beam=1))
            heard += [held_out.assets.tokeniser.decode(one[0].tokens).strip() for one in hypotheses]
            said += [held_out.assets.tokeniser.decode(row).strip() for row in target.tolist()]
        figures = {"loss": loss / max(count, 1), **_rates(said, heard)}
        if lines:
            figures["diagonality"] = float(np.mean(lines))
            self._notice(held_out, step, figures["diagonality"])
        return figures

    def _notice(self, held_out: _HeldOut, step: int, diagonal: float) -> None:
        """Log, once, that the attention has not found its way, and what to try."""
        if step < self.config.diagonal_after or diagonal >= _DIAGONAL or held_out.noticed:
            return
        held_out.noticed.append(step)
        options = self.config.model.resolved
        tries = []
        if not options.get("ctc", True):
            tries.append("train with CTC beside it (model.ctc=true)")
        elif self.config.ctc.weight < 0.5:
            tries.append("raise ctc.weight to 0.5 or more")
        if options.get("score", "location_aware") != "location_aware" or not options.get("content", True):
            tries.append("use content and location (model.score=location_aware, model.content=true)")
        tries += [
            "train on shorter utterances first (data.max_seconds)",
            "lower training.learning_rate or lengthen training.warmup",
            "check that transcripts belong to their recordings",
        ]
        held_out.log(
            f"after {step:,} steps the attention does not follow the sound (the correlation of tokens and times is "
            f"{diagonal:.2f}, expected {_DIAGONAL} or more). To try: {'; '.join(tries)}"
        )

    # ---- predictions

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
        for number, heard in self._answers(_plain(model), assets, records, options, progress, keep=trace):
            if isinstance(heard, DataError):
                found[number] = Prediction(records[number], "", None, {"notes": [str(heard)], "words": []})
            else:
                found[number] = self._joined(_plain(model), assets, records[number], *heard, options, trace)
        return [found[number] for number in range(len(records))]

    def _answers(
        self,
        model: Recogniser,
        assets: SpeechAssets,
        records: Sequence[Record],
        options: SearchOptions,
        progress: Progress,
        *,
        keep: bool = False,
    ) -> Iterator[tuple[int, tuple[list[_Answer], list[str]] | DataError]]:
        """Yield the number of each record with the answers for its pieces and notes, or why it cannot be used.

        They come as they are done, which is by length; ``keep`` keeps spectrogram and sound.
        """
        pieces: list[_Piece] = []
        notes: dict[int, list[str]] = {}
        for number, record in enumerate(records):
            try:
                own, notes[number] = self._pieces(number, str(record["audio"]), assets, options, keep=keep)
                pieces += own
            except DataError as error:
                progress(1)
                yield number, error
        waiting = Counter(piece.record for piece in pieces)
        answers: dict[int, list[_Answer]] = defaultdict(list)
        for indices in by_length([len(piece.features) for piece in pieces], options.batch_frames):
            for answer in self._transcribed(model, assets, [pieces[i] for i in indices], options):
                number = answer.piece.record
                answers[number].append(answer)
                if len(answers[number]) == waiting[number]:
                    progress(1)
                    yield number, (sorted(answers.pop(number), key=lambda one: one.piece.start), notes[number])

    def _pieces(
        self, number: int, address: str, assets: SpeechAssets, options: SearchOptions, *, keep: bool
    ) -> tuple[list[_Piece], list[str]]:
        """Read a recording and cut it at silences where it is long; return the pieces, and notes for the user."""
        notes: list[str] = []
        reader = replace(self.reader, max_seconds=_LONGEST, upsample=True)
        shift = self.config.features.shift / 1000
        longest, most = (options.piece or frames * shift for frames in (assets.longest, assets.usual))
        samples = None
        if is_feature_file(address):
            frames = read_features(address)
            loudness = frames[:, 0]
        else:
            if morse.is_morse(address):
                left_out = morse.message_of(address).left_out
                notes += [f"characters without a code were left out: {left_out}"] if left_out else []
            elif (rate := read_header(address).rate) < self.config.features.rate:
                notes.append(
                    f"the recording has {rate:,} samples per second, the run was trained with "
                    f"{self.config.features.rate:,}: its upper bands are empty, expect more errors"
                )
            samples = reader.sound(address).samples
            frames = reader.bank(samples)
            loudness = frames.mean(axis=1) if len(frames) else np.zeros(0)
        features = reader.finished(address, frames)
        if features.shape[1] != assets.input_dim:
            raise DataError(
                f"{address}: has {features.shape[1]} features per frame, expected {assets.input_dim}, as in training."
            )
        ranges = [(0, len(features))]
        if len(features) * shift > longest:
            ranges = cut_at_silences(loudness, shift, most)
            notes.append(
                f"the recording lasts {len(features) * shift:.1f} s and was cut at silences into {len(ranges)} pieces"
            )
        how, statistics = self.config.features.normalise, assets.statistics
        # A model may hear less than a picture should show: a single band of all frequencies, for example.
        spectrogram = reader.bank._replace(bins=_DRAWN_BINS)(samples) if keep and samples is not None else frames
        size = self.config.features.rate * shift
        return [
            _Piece(
                number,
                start * shift,
                normalised(features[start:end], how, statistics),
                spectrogram[start:end] if keep else None,
                samples[int(start * size) : int(end * size)] if keep and samples is not None else None,
            )
            for start, end in ranges
        ], notes

    def _transcribed(
        self, model: Recogniser, assets: SpeechAssets, pieces: Sequence[_Piece], options: SearchOptions
    ) -> list[_Answer]:
        """Return the hypotheses of each piece."""
        device = next(model.parameters()).device
        examples = SpeechExamples([piece.features for piece in pieces], [[]] * len(pieces), len(assets.tokeniser))
        batch = examples.batch(np.arange(len(pieces)), examples.lengths.max(axis=0).tolist())
        encoded = model.encode(batch.features.to(device), batch.lengths.to(device))
        found = _search(model, encoded, options)
        return [
            _Answer(piece, hypotheses, _row(encoded, row)) for row, (piece, hypotheses) in enumerate(zip(pieces, found))
        ]

    def _joined(
        self,
        model: Recogniser,
        assets: SpeechAssets,
        record: Record,
        answers: Sequence[_Answer],
        notes: list[str],
        options: TranscribeOptions,
        trace: bool,
    ) -> Prediction:
        """Return the answer for a recording from those for its pieces; alternatives only where there is one piece."""
        first = answers[0]
        heard = [self._listen(model, assets, answer, answer.hypotheses[0]) for answer in answers]
        rate = self.config.features.rate
        traced = _trace(model, assets, first, heard[0], self._cell_seconds(model), rate) if trace else None
        if trace and len(answers) > 1:
            notes = [*notes, "only the first piece is shown"]
        best = self._prediction(record, answers, heard, [answer.hypotheses[0] for answer in answers], notes, options)
        others = []
        for hypothesis in first.hypotheses[1:] if len(answers) == 1 else ():
            listened = self._listen(model, assets, first, hypothesis)
            others.append(self._prediction(record, answers, [listened], [hypothesis], [], options))
        return replace(best, trace=traced, alternatives=tuple(others))

    def _prediction(
        self,
        record: Record,
        answers: Sequence[_Answer],
        heard: Sequence[_Listened],
        hypotheses: Sequence[Hypothesis],
        notes: list[str],
        options: TranscribeOptions,
    ) -> Prediction:
        words = [word.moved(answer.piece.start) for answer, listened in zip(answers, heard) for word in listened.words]
        text = " ".join(filter(None, (listened.text.strip() for listened in heard)))
        score = sum(hypothesis.score for hypothesis in hypotheses)
        frames = sum(len(answer.piece.features) for answer in answers)
        details: dict[str, Any] = {
            "text": text,
            "words": [word.to_json() for word in words],
            "seconds": frames * self.config.features.shift / 1000,
            "log_prob": sum(hypothesis.log_prob for hypothesis in hypotheses),
            "finished": all(hypothesis.finished for hypothesis in hypotheses),
        }
        if len(answers) > 1:
            details["pieces"] = [
                {"start": answer.piece.start, "text": listened.text} for answer, listened in zip(answers, heard)
            ]
        told = list(notes)
        if not details["finished"]:
            told.append("the transcript was cut at its greatest length (max_length)")
        if apart := disagreements(words, options.tolerance):
            told.append(apart)
        if told:
            details["notes"] = told
        forms = {"text": lambda: text, "ctm": lambda: to_ctm(str(record["audio"]), words), "srt": lambda: to_srt(words)}
        return Prediction(record, forms[options.form](), score, details)

    def _cell_seconds(self, model: Recogniser) -> float:
        return model.reduction * self.config.features.shift / 1000

    def _listen(self, model: Recogniser, assets: SpeechAssets, answer: _Answer, hypothesis: Hypothesis) -> _Listened:
        """Return when and how surely each token of a hypothesis was heard."""
        tokens = hypothesis.tokens
        encoded, device = answer.encoded, answer.encoded.values.device
        weights: Weights | None = None
        log_probs = [0.0] * len(tokens)
        if model.decoder is not None:
            target = torch.tensor([[BOS, *tokens]], device=device)
            taught = model.teach(encoded, target)
            weights = taught.attentions["decoder.cross"]
            logs = torch.log_softmax(taught.logits[0].double(), dim=-1)
            log_probs = [float(logs[place, token]) for place, token in enumerate(tokens)]
        aligned = None
        if model.ctc_output is not None:
            frames = model.ctc_log_probs(encoded)[0]
            if ctc.shortest_path(tokens) <= len(frames):
                aligned = ctc.align(frames, tokens)
                if model.decoder is None:
                    log_probs = [float(frames[a : b + 1, token].max()) for (a, b), token in zip(aligned, tokens)]
        over = None if weights is None else _mean_heads(weights)[: len(tokens)]
        words = spoken_words(assets.tokeniser, tokens, log_probs, over, aligned, self._cell_seconds(model))
        return _Listened(assets.tokeniser.decode(tokens).strip(), words, tokens, hypothesis, weights, aligned)

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
        texts: dict[int, str] = {}
        left_out: list[DataError] = []
        for number, found in self._answers(_plain(model), assets, records, options, progress):
            if isinstance(found, DataError):
                left_out.append(found)
                continue
            best = [assets.tokeniser.decode(answer.hypotheses[0].tokens).strip() for answer in found[0]]
            texts[number] = " ".join(filter(None, best))
        if not texts:
            raise DataError(f"evaluate: none of {len(records)} recordings can be used; {left_out[0]}")
        said = [self._text(str(records[number]["text"])) for number in sorted(texts)]
        heard = [texts[number] for number in sorted(texts)]
        words, characters = word_errors(said, heard), character_errors(said, heard)
        figures: dict[str, float | int] = {
            "utterances": len(texts),
            "wer": words.rate,
            "cer": characters.rate,
            "sentence_errors": sentence_errors(said, heard),
            "words": words.hits + words.substitutions + words.deletions,
            "substitutions": words.substitutions,
            "deletions": words.deletions,
            "insertions": words.insertions,
        }
        notes = {"rates": "errors per word (wer) and character (cer) of the references, all utterances together; jiwer"}
        if left_out:
            figures["left_out"] = len(left_out)
            notes["left_out"] = str(left_out[0])
        worst = [
            (one.counts.errors, one.counts.hits + one.counts.substitutions + one.counts.deletions, one.alignment)
            for one in differences(said, heard, options.worst)
        ]
        return Evaluation(figures, notes, {"worst": Table(("errors", "words", "alignment"), tuple(worst))})


@dataclass(frozen=True)
class _HeldOut:
    """The validation utterances, and where to say what is noticed; ``noticed`` has the step at which it was said."""

    assets: SpeechAssets
    batches: list[SpeechBatch]
    log: Log
    noticed: list[int] = field(default_factory=list)


class _Piece(NamedTuple):
    """A stretch of a recording: the number of its record, when it begins, and its features.

    ``spectrogram`` and ``samples`` are kept for pictures; the former is the features themselves where a file had them.
    """

    record: int
    start: float
    features: ndarray
    spectrogram: ndarray | None
    samples: ndarray | None


class _Answer(NamedTuple):
    """A piece, its hypotheses, best first, and its cells."""

    piece: _Piece
    hypotheses: list[Hypothesis]
    encoded: Encoded


class _Listened(NamedTuple):
    """A hypothesis with its words, its attention, and CTC's first and last cell of each token."""

    text: str
    words: list[SpokenWord]
    tokens: list[int]
    hypothesis: Hypothesis
    weights: Weights | None
    aligned: list[tuple[int, int]] | None


def _plain(model: nn.Module) -> Recogniser:
    """Return the model itself, where it is wrapped for several processes."""
    return cast("Recogniser", getattr(model, "module", model))


def _search(model: Recogniser, encoded: Encoded, options: SearchOptions) -> list[list[Hypothesis]]:
    """Return the hypotheses of each recording, best first: by decoder, by CTC, or by both."""
    limits = Limits(max_length=options.max_length, bos=BOS, eos=EOS, banned=(PAD, BOS))
    both = model.decoder is not None and model.ctc_output is not None
    decoder: Any
    if model.decoder is None or (both and options.ctc_weight > 0):
        weight = 1.0 if model.decoder is None else options.ctc_weight
        decoder = CtcJoinedDecoder(None if model.decoder is None else model, weight, bos=BOS, eos=EOS)
        inner = None if model.decoder is None else model.decoder.start(encoded)
        start = decoder.start(inner, model.ctc_log_probs(encoded), encoded.valid)
    else:
        decoder = model
        steps = [int(count) + 1 for count in encoded.valid.sum(dim=1).tolist()]
        memory, state = model.decoder.start(encoded)
        start = SearchStart(memory, state, len(encoded.values), encoded.values.device, steps, encoded.valid)
    if options.beam == 1:
        return greedy(decoder, start, limits=limits)
    n_best = options.n_best if isinstance(options, TranscribeOptions) else 1
    return beam(decoder, start, size=options.beam, n_best=n_best, length_penalty=options.length_penalty, limits=limits)


def _row(encoded: Encoded, row: int) -> Encoded:
    """Return one recording of a batch, without padding."""
    cells = int(encoded.valid[row].sum())
    attentions = {
        name: Weights.of(weights.dense()[row : row + 1, :, :cells, :cells])
        for name, weights in (encoded.attentions or {}).items()
    }
    return Encoded(
        encoded.values[row : row + 1, :cells],
        encoded.valid[row : row + 1, :cells],
        None if encoded.summary is None else tuple(part[row : row + 1] for part in encoded.summary),
        None if encoded.keys is None else encoded.keys[row : row + 1, :cells],
        attentions or None,
    )


def _mean_heads(weights: Weights) -> ndarray:
    """Return the weights of the first row of a batch, ``(U, S)``, the mean of its heads."""
    dense = weights.dense()[0].float()
    found: ndarray = (dense.mean(dim=0) if dense.dim() == 3 else dense).cpu().numpy()
    return found


def _diagonalities(weights: Weights, target: Tensor) -> list[float]:
    """Return how diagonal the attention of each utterance is, EOS aside."""
    dense = weights.dense().float()
    dense = dense.mean(dim=1) if dense.dim() == 4 else dense
    lengths = (target != PAD).sum(dim=1) - 2
    return [diagonality(row[:length].cpu().numpy()) for row, length in zip(dense, lengths.tolist()) if length >= 3]


def _rates(said: Sequence[str], heard: Sequence[str]) -> dict[str, float]:
    return {"cer": character_errors(said, heard).rate, "wer": word_errors(said, heard).rate}


def _trace(
    model: Recogniser, assets: SpeechAssets, answer: _Answer, heard: _Listened, seconds: float, rate: int
) -> Trace:
    """Return what each token of a piece listened to, by CTC's alignment and by the attention."""
    cells = answer.encoded.values.shape[1]
    labels = assets.tokeniser.labels(heard.tokens)
    ended = ["<eos>"] if model.decoder is not None else []
    samples = answer.piece.samples
    recording = replace(
        Cells.of_frames(cells, seconds=seconds, spectrogram=answer.piece.spectrogram),
        marks=_marks(heard.words, seconds, cells),
        sound=None if samples is None else np.rint(np.clip(samples, -1, 1) * 32767).astype(np.int16),
        rate=None if samples is None else rate,
    )
    sides = {"source": recording, "target": Cells("tokens", (*labels, *ended), "transcript")}
    handles: dict[str, Weights] = {} if heard.weights is None else {"decoder.cross": heard.weights}
    if heard.aligned is not None:
        spans = torch.zeros(1, len(labels) + len(ended), cells)
        for row, (first, last) in enumerate(heard.aligned):
            spans[0, row, first : last + 1] = 1 / (last + 1 - first)
        handles["ctc"] = Weights.of(spans)
    between = dict.fromkeys(handles, ("target", "source"))
    for name, weights in (answer.encoded.attentions or {}).items():
        handles[name] = weights
        between[name] = ("source", "source")
    facts: dict[str, str | float] = {"score": heard.hypothesis.score}
    return Trace.from_handles(handles, sides, between=between, text=heard.text, facts=facts)


def _marks(words: Sequence[SpokenWord], seconds: float, cells: int) -> tuple[Mark, ...]:
    """Return the words as stretches of cells, none of which overlaps the one before it."""
    marks: list[Mark] = []
    for word in words:
        first, last = (round(word.span[0] / seconds), round(word.span[1] / seconds) - 1)
        first = max(first, marks[-1].last + 1 if marks else 0)
        if first >= cells:
            break
        marks.append(Mark(first, min(max(first, last), cells - 1), word.text, min(word.confidence, 1.0)))
    return tuple(marks)


def _quoted(utterance: Utterance) -> str:
    name = utterance.audio if morse.is_morse(utterance.audio) else Path(utterance.audio).name
    return repr(printable(f"{name}: {utterance.text}"[:90]))
