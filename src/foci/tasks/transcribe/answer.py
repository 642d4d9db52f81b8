"""The answer for a recording: its text, its words with times and probabilities, and a trace of what was listened to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy import ndarray

from foci.data import BOS
from foci.decoding import Hypothesis
from foci.errors import DataError
from foci.functional import ctc
from foci.layers.interfaces import EncoderOutput
from foci.metrics.calibration import NOT_CALIBRATED, Odds
from foci.models.recognizer import Recognizer
from foci.scripts import join_texts
from foci.tasks.frame.task import Prediction, Record
from foci.tasks.transcribe.config import FeatureConfig, OutputFormat, TranscribeOptions
from foci.tasks.transcribe.data import SpeechAssets
from foci.tasks.transcribe.search import Answer, Answers, Segment
from foci.tasks.transcribe.words import Aligned, SpokenWord, doubtful_times, spoken_words, to_ctm, to_srt
from foci.viz.axis import Mark
from foci.viz.trace import Axis, Trace
from foci.weights import Weights


class Alignment(NamedTuple):
    """A hypothesis with its words, its attention, and CTC's first and last position of each token."""

    text: str
    words: list[SpokenWord]
    hypothesis: Hypothesis
    weights: Weights | None
    spans: list[tuple[int, int]] | None


@torch.no_grad()
def align(
    model: Recognizer,
    assets: SpeechAssets,
    encoded: EncoderOutput,
    hypothesis: Hypothesis,
    seconds: float,
    odds: Odds = NOT_CALIBRATED,
) -> Alignment:
    """Return when each word of a hypothesis was heard, and how probable it is.

    Args:
        model: which transcribed it.
        assets: of the run.
        encoded: the positions of the recording.
        hypothesis: what was transcribed.
        seconds: duration of a position.
        odds: calibrate the probabilities of words.
    """
    tokens, device = hypothesis.tokens, encoded.values.device
    weights: Weights | None = None
    log_probs = [0.0] * len(tokens)
    if model.decoder is not None:
        target = torch.tensor([[BOS, *tokens]], device=device)
        taught = model.teach(encoded, target)
        weights = taught.attentions["decoder.cross"]
        logs = torch.log_softmax(taught.logits[0].double(), dim=-1)
        log_probs = [float(logs[place, token]) for place, token in enumerate(tokens)]
    spans, aligned = None, None
    if model.ctc_output is not None:
        frames = model.ctc_log_probs(encoded)[0]
        if ctc.shortest_path(tokens) <= len(frames):
            spans = ctc.align(frames, tokens)
            heard = [float(frames[a : b + 1, token].max()) for (a, b), token in zip(spans, tokens)]
            aligned = Aligned(spans, [math.exp(one) for one in heard])
            log_probs = heard if model.decoder is None else log_probs
    over = None if weights is None else _mean_heads(weights)[: len(tokens)]
    words = spoken_words(assets.tokenizer, tokens, log_probs, over, aligned, encoded.values.shape[1], seconds)
    sure = odds([word.confidence for word in words])
    words = [replace(word, confidence=confidence) for word, confidence in zip(words, sure)]
    return Alignment(assets.tokenizer.decode(tokens).strip(), words, hypothesis, weights, spans)


def _mean_heads(weights: Weights) -> ndarray:
    """Return the weights of the first row of a batch, ``(U, S)``, the mean of its heads."""
    dense = weights.dense()[0].float()
    found: ndarray = (dense.mean(dim=0) if dense.dim() == 3 else dense).cpu().numpy()
    return found


def speech_trace(
    model: Recognizer, assets: SpeechAssets, answer: Answer, alignment: Alignment, seconds: float, rate: int
) -> Trace:
    """Return what each token of a segment listened to, by CTC's alignment and by the attention.

    Args:
        model: which transcribed it.
        assets: of the run.
        answer: the segment, with its spectrogram and its sound.
        alignment: of the hypothesis that is shown.
        seconds: duration of a position.
        rate: samples of the sound per second.
    """
    positions = answer.encoded.values.shape[1]
    labels = assets.tokenizer.labels(alignment.hypothesis.tokens)
    ended = ["<eos>"] if model.decoder is not None else []
    samples = answer.segment.samples
    recording = replace(
        Axis.from_frames(
            positions, seconds=seconds, spectrogram=answer.segment.spectrogram, start=answer.segment.start
        ),
        marks=_marks(alignment.words, seconds, positions),
        sound=None if samples is None else np.rint(np.clip(samples, -1, 1) * 32767).astype(np.int16),
        rate=None if samples is None else rate,
    )
    sides = {"source": recording, "target": Axis("tokens", (*labels, *ended), "transcript")}
    handles: dict[str, Weights] = {} if alignment.weights is None else {"decoder.cross": alignment.weights}
    if alignment.spans is not None:
        spans = torch.zeros(1, len(labels) + len(ended), positions)
        for row, (first, last) in enumerate(alignment.spans):
            spans[0, row, first : last + 1] = 1 / (last + 1 - first)
        handles["ctc"] = Weights.from_tensor(spans)
    axes_of = dict.fromkeys(handles, ("target", "source"))
    for name, weights in (answer.encoded.attentions or {}).items():
        handles[name] = weights
        axes_of[name] = ("source", "source")
    metadata: dict[str, str | float] = {"score": alignment.hypothesis.score}
    return Trace.from_handles(handles, sides, axes_of=axes_of, text=alignment.text, metadata=metadata, derived=("ctc",))


def _marks(words: Sequence[SpokenWord], seconds: float, positions: int) -> tuple[Mark, ...]:
    """Return the words as stretches of positions, none of which overlaps the one before it."""
    marks: list[Mark] = []
    for word in words:
        first, last = (round(word.span[0] / seconds), round(word.span[1] / seconds) - 1)
        first = max(first, marks[-1].last + 1 if marks else 0)
        if first >= positions:
            break
        marks.append(Mark(first, min(max(first, last), positions - 1), word.text, min(word.confidence, 1.0)))
    return tuple(marks)


def prediction_of(
    model: Recognizer,
    assets: SpeechAssets,
    settings: FeatureConfig,
    record: Record,
    answers: Answers,
    options: TranscribeOptions,
    odds: Odds,
    *,
    trace: bool,
) -> Prediction:
    """Return the answer for a recording from those for its segments; alternatives only where there is one segment."""
    seconds = model.subsampling_factor * settings.hop_ms / 1000
    segments, first, notes = [one.segment for one in answers.segments], answers.segments[0], answers.notes
    number = options.segment - 1
    best = [align(model, assets, one.encoded, one.hypotheses[0], seconds, odds) for one in answers.segments]
    traced = None
    if trace and number < len(segments):
        traced = speech_trace(model, assets, answers.segments[number], best[number], seconds, settings.sample_rate)
    if trace and (len(segments) > 1 or traced is None):
        notes = [*notes, _on_shown(segments, number, settings)]
    others = [
        _prediction(
            record,
            segments,
            [align(model, assets, first.encoded, hypothesis, seconds, odds)],
            settings,
            [],
            options,
        )
        for hypothesis in (first.hypotheses[1:] if len(segments) == 1 else ())
    ]
    if silent := sum(not one.is_speech(options) for one in answers.segments):
        where = "" if len(segments) == 1 else f" in {silent} of {len(segments)} segments"
        notes = [
            *notes,
            f"no speech was found{where}: the sound does not change as speech in training does (no-speech score up to "
            f"{max(segment.no_speech for segment in segments):.2f}, no_speech_threshold is "
            f"{options.no_speech_threshold:g})",
        ]
    found = _prediction(record, segments, best, settings, notes, options)
    return replace(found, trace=traced, alternatives=tuple(others))


def _on_shown(segments: Sequence[Segment], number: int, settings: FeatureConfig) -> str:
    """Return which segment of a recording is shown, and how to see another one."""
    if number >= len(segments):
        count = len(segments)
        return f"segment {number + 1} is not shown, expected 1 to {count} (choose with --segment)"
    start = segments[number].start
    end = start + len(segments[number].features) * settings.hop_ms / 1000
    return f"segment {number + 1} of {len(segments)} is shown, {start:.1f} to {end:.1f} s (choose with --segment)"


def no_prediction(record: Record, error: DataError, options: TranscribeOptions) -> Prediction:
    """Return the answer for a recording that cannot be used, with a note that says why."""
    failed = Prediction.failure(record, str(error))
    output = _in_form(options.output_format, record, "", [])
    return replace(failed, output=output)


def _prediction(
    record: Record,
    segments: Sequence[Segment],
    alignments: Sequence[Alignment],
    settings: FeatureConfig,
    notes: Sequence[str],
    options: TranscribeOptions,
) -> Prediction:
    """Return the joined hypotheses of the segments, in the chosen format."""
    words = [word.moved(segment.start) for segment, one in zip(segments, alignments) for word in one.words]
    text = join_texts(one.text for one in alignments)
    hypotheses = [one.hypothesis for one in alignments]
    details: dict[str, Any] = {
        "text": text,
        "words": [word.to_json() for word in words],
        "seconds": round(sum(len(segment.features) for segment in segments) * settings.hop_ms / 1000, 3),
        "log_prob": sum(hypothesis.log_prob for hypothesis in hypotheses),
        "finished": all(hypothesis.finished for hypothesis in hypotheses),
        "no_speech": round(min(segment.no_speech for segment in segments), 3),
    }
    if len(segments) > 1:
        details["segments"] = [
            {"start": round(segment.start, 3), "text": one.text, "no_speech": round(segment.no_speech, 3)}
            for segment, one in zip(segments, alignments)
        ]
    messages = list(notes)
    if not details["finished"]:
        messages.append("the transcript was truncated at max_length")
    if doubtful := doubtful_times(words, options.min_time_confidence):
        messages.append(doubtful)
    if messages:
        details["notes"] = messages
    score = sum(hypothesis.score for hypothesis in hypotheses)
    return Prediction(record, _in_form(options.output_format, record, text, words), score, details)


def _in_form(form: OutputFormat, record: Record, text: str, words: Sequence[SpokenWord]) -> str:
    if form == "ctm":
        return to_ctm(str(record["audio"]), words)
    return to_srt(words) if form == "srt" else text
