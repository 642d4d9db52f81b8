"""Recordings as segments that are cut at silences where they are long, and the search for their transcripts."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray

from foci.data import BOS, EOS, PAD
from foci.data.audio.features import normalized, read_features
from foci.data.audio.files import read_header
from foci.data.audio.segments import cut_at_silences
from foci.data.builtin import morse
from foci.decoding import CtcJoinedDecoder, DecoderInputs, GenerationConstraints, Hypothesis, beam, greedy
from foci.errors import DataError
from foci.layers.interfaces import EncoderOutput
from foci.models.recognizer import Recognizer
from foci.tasks.frame.prediction_loop import by_length
from foci.tasks.frame.task import Progress, Record
from foci.tasks.transcribe.config import FeatureConfig, TranscribeOptions, TranscriptSearchOptions
from foci.tasks.transcribe.data import SpeechAssets, SpeechExamples, SpeechReader, filter_bank, is_feature_file
from foci.weights import Weights

_LONGEST = 4 * 3600.0
"""Seconds of the longest recording that is transcribed."""
_DRAWN_BINS = 40
"""Mel filters of the spectrograms in pictures."""


class Segment(NamedTuple):
    """A stretch of a recording: the number of its record, when it begins, its features, and its no-speech score.

    The features are not normalized yet, so that those of hours of sound are held once. ``spectrogram`` and ``samples``
    are kept of the one that is shown; the former is the features themselves where a file had them.
    """

    record: int
    start: float
    features: ndarray
    no_speech: float
    spectrogram: ndarray | None = None
    samples: ndarray | None = None


def read_segments(
    number: int,
    address: str,
    settings: FeatureConfig,
    assets: SpeechAssets,
    *,
    seconds: float | None,
    shown: int | None = None,
) -> tuple[list[Segment], list[str]]:
    """Read a recording and cut it at silences where it is long; return the segments, and notes for the user.

    Args:
        number: of its record.
        address: its file, or another name of it.
        settings: how sound becomes features.
        assets: of the run.
        seconds: longest segment. Default: by the lengths of the training utterances.
        shown: number of the segment that is shown, counted from 1. Default: none.

    Raises:
        DataError: it cannot be used.
    """
    notes: list[str] = []
    reader = SpeechReader(filter_bank(settings), settings.deltas, upsample=True, max_seconds=_LONGEST)
    shift = settings.hop_ms / 1000
    longest, most = (seconds or frames * shift for frames in (assets.longest, assets.usual))
    if is_feature_file(address):
        frames = read_features(address)
        loudness = frames[:, 0]
    else:
        notes += _notes_on_sound(address, settings.sample_rate)
        frames = reader.bank.from_blocks(reader.blocks(address))
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
            f"the recording lasts {len(features) * shift:.1f} s and was cut at silences into {len(ranges)} segments"
        )
    segments = [
        Segment(number, start * shift, features[start:end], assets.no_speech(features[start:end], settings.hop_ms))
        for start, end in ranges
    ]
    if shown is not None and shown <= len(ranges):
        start, end = ranges[shown - 1]
        segments[shown - 1] = _with_sound(segments[shown - 1], address, reader, frames[start:end], start)
    return segments, notes


def _with_sound(segment: Segment, address: str, reader: SpeechReader, frames: ndarray, start: int) -> Segment:
    """Return a segment that begins with frame ``start``, with what pictures show of it."""
    if is_feature_file(address):
        return segment._replace(spectrogram=frames)
    size, shift = reader.bank.sizes
    first, last = start * shift, (start + len(frames)) * shift
    # Decoded once more: only the sound of one segment is held.
    heard = reader.samples(address, first, last + size)
    # A model may hear less than a picture should show: a single band of all frequencies, for example.
    spectrogram = reader.bank._replace(bins=_DRAWN_BINS)(heard)[: len(frames)]
    return segment._replace(spectrogram=spectrogram, samples=heard[: last - first])


def _notes_on_sound(address: str, expected: int) -> list[str]:
    """Return what a user should know before relying on the transcript."""
    if morse.is_morse(address):
        left_out = morse.message_of(address).left_out
        return [f"characters without a code were left out: {left_out}"] if left_out else []
    header, notes = read_header(address), []
    if header.present < 1:
        notes.append(f"the file is cut off: it has {header.present:.0%} of the samples that its header claims")
    if header.rate < expected:
        notes.append(
            f"the recording has {header.rate:,} samples per second, the run was trained with {expected:,}: its upper "
            "bands are empty, expect more errors"
        )
    return notes


_READ_TOGETHER = 16
"""Batches of frames that are held in memory: hours of sound must not be, but similar lengths should be found."""


class Answer(NamedTuple):
    """A segment, its hypotheses, best first, and its positions."""

    segment: Segment
    hypotheses: list[Hypothesis]
    encoded: EncoderOutput

    def is_speech(self, options: TranscriptSearchOptions) -> bool:
        """Return whether the segment is transcribed; otherwise its only hypothesis is empty."""
        return self.segment.no_speech <= options.no_speech_threshold


class Answers(NamedTuple):
    """The answers for the segments of a recording, in their order, and notes for the user."""

    segments: list[Answer]
    notes: list[str]


def answer_records(
    model: Recognizer,
    assets: SpeechAssets,
    settings: FeatureConfig,
    records: Sequence[Record],
    options: TranscriptSearchOptions,
    progress: Progress,
    *,
    shown: int | None = None,
) -> Iterator[tuple[int, Answers | DataError]]:
    """Yield the number of each record with the answers for its segments, or why it cannot be used.

    They come as they are done, which is by length among those that are read together; of the segment with the number
    ``shown`` spectrogram and sound are kept.
    """
    segments: list[Segment] = []
    notes: dict[int, list[str]] = {}
    for number, record in enumerate(records):
        try:
            own, notes[number] = read_segments(
                number, str(record["audio"]), settings, assets, seconds=options.max_segment_seconds, shown=shown
            )
        except DataError as error:
            progress(1)
            yield number, error
            continue
        segments += own
        if sum(len(segment.features) for segment in segments) >= _READ_TOGETHER * options.batch_frames:
            yield from _answer_together(model, assets, settings, segments, notes, options, progress)
            segments = []
    yield from _answer_together(model, assets, settings, segments, notes, options, progress)


def _answer_together(
    model: Recognizer,
    assets: SpeechAssets,
    settings: FeatureConfig,
    segments: Sequence[Segment],
    notes: Mapping[int, list[str]],
    options: TranscriptSearchOptions,
    progress: Progress,
) -> Iterator[tuple[int, Answers]]:
    """Yield the answers for recordings of which these are all segments."""
    waiting = Counter(segment.record for segment in segments)
    answers: dict[int, list[Answer]] = defaultdict(list)
    for indices in by_length([len(segment.features) for segment in segments], options.batch_frames):
        for answer in _answer_segments(model, assets, settings, [segments[i] for i in indices], options):
            number = answer.segment.record
            answers[number].append(answer)
            if len(answers[number]) == waiting[number]:
                progress(1)
                in_order = sorted(answers.pop(number), key=lambda one: one.segment.start)
                yield number, Answers(in_order, notes[number])


def _answer_segments(
    model: Recognizer,
    assets: SpeechAssets,
    settings: FeatureConfig,
    segments: Sequence[Segment],
    options: TranscriptSearchOptions,
) -> list[Answer]:
    """Return the hypotheses of each segment."""
    like = next(model.parameters())
    features = [normalized(segment.features, settings.normalize, assets.features) for segment in segments]
    examples = SpeechExamples(features, [[]] * len(segments), len(assets.tokenizer))
    batch = examples.batch(np.arange(len(segments)), examples.lengths.max(axis=0).tolist())
    encoded = model.encode(batch.features.to(like), batch.lengths.to(like.device))
    found = search(model, encoded, options)
    answers = [Answer(*both, one_row(encoded, row)) for row, both in enumerate(zip(segments, found))]
    return [one if one.is_speech(options) else one._replace(hypotheses=[_nothing(one.segment)]) for one in answers]


def _nothing(segment: Segment) -> Hypothesis:
    """Return the empty transcript of a segment without speech; its score is the logarithm of the no-speech score."""
    score = math.log(segment.no_speech)
    return Hypothesis([], score, score, finished=True)


def search(model: Recognizer, encoded: EncoderOutput, options: TranscriptSearchOptions) -> list[list[Hypothesis]]:
    """Return the hypotheses of each recording, best first: by decoder, by CTC, or by both."""
    constraints = GenerationConstraints(max_length=options.max_length, bos=BOS, eos=EOS, banned=(PAD, BOS))
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
        start = DecoderInputs(memory, state, len(encoded.values), encoded.values.device, steps, encoded.valid)
    if options.beam_size == 1:
        return greedy(decoder, start, constraints=constraints)
    n_best = options.n_best if isinstance(options, TranscribeOptions) else 1
    return beam(
        decoder,
        start,
        size=options.beam_size,
        n_best=n_best,
        length_penalty=options.length_penalty,
        constraints=constraints,
    )


def one_row(encoded: EncoderOutput, row: int) -> EncoderOutput:
    """Return one recording of a batch, without padding."""
    positions = int(encoded.valid[row].sum())
    attentions = {
        name: Weights.from_tensor(weights.dense()[row : row + 1, :, :positions, :positions])
        for name, weights in (encoded.attentions or {}).items()
    }
    return EncoderOutput(
        encoded.values[row : row + 1, :positions],
        encoded.valid[row : row + 1, :positions],
        None if encoded.summary is None else tuple(part[row : row + 1] for part in encoded.summary),
        None if encoded.keys is None else encoded.keys[row : row + 1, :positions],
        attentions or None,
    )
