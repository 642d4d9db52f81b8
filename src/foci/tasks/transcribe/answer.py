"""The answer for a recording: its text, its words with times and probabilities, and what to know about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from foci.errors import DataError
from foci.models.recognizer import Recognizer
from foci.tasks.frame.task import Prediction, Record
from foci.tasks.transcribe.alignment import Alignment, align
from foci.tasks.transcribe.assets import SpeechAssets
from foci.tasks.transcribe.config import FeatureConfig, OutputFormat, TranscribeOptions
from foci.tasks.transcribe.forms import to_ctm, to_srt
from foci.tasks.transcribe.pieces import Piece
from foci.tasks.transcribe.search import Answers
from foci.tasks.transcribe.trace import speech_trace
from foci.tasks.transcribe.words import SpokenWord, disagreements, join_texts


def prediction_of(
    model: Recognizer,
    assets: SpeechAssets,
    settings: FeatureConfig,
    record: Record,
    answers: Answers,
    options: TranscribeOptions,
    *,
    trace: bool,
) -> Prediction:
    """Return the answer for a recording from those for its pieces; alternatives only where there is one piece."""
    seconds = model.subsampling_factor * settings.hop_ms / 1000
    pieces, first, notes = [one.piece for one in answers.pieces], answers.pieces[0], answers.notes
    best = [align(model, assets, one, one.hypotheses[0], seconds) for one in answers.pieces]
    traced = speech_trace(model, assets, first, best[0], seconds, settings.sample_rate) if trace else None
    if trace and len(pieces) > 1:
        notes = [*notes, f"only the first piece is shown, which ends at {pieces[1].start:.1f} s"]
    others = [
        _prediction(record, pieces, [align(model, assets, first, hypothesis, seconds)], settings, [], options)
        for hypothesis in (first.hypotheses[1:] if len(pieces) == 1 else ())
    ]
    found = _prediction(record, pieces, best, settings, notes, options)
    return replace(found, trace=traced, alternatives=tuple(others))


def no_prediction(record: Record, error: DataError, options: TranscribeOptions) -> Prediction:
    """Return the answer for a recording that cannot be used, with a note that says why."""
    return Prediction(
        record, _in_form(options.output_format, record, "", []), None, {"notes": [str(error)], "words": []}
    )


def _prediction(
    record: Record,
    pieces: Sequence[Piece],
    alignments: Sequence[Alignment],
    settings: FeatureConfig,
    notes: Sequence[str],
    options: TranscribeOptions,
) -> Prediction:
    """Return the joined hypotheses of the pieces, in the form that was asked for."""
    words = [word.moved(piece.start) for piece, one in zip(pieces, alignments) for word in one.words]
    text = join_texts(one.text for one in alignments)
    hypotheses = [one.hypothesis for one in alignments]
    details: dict[str, Any] = {
        "text": text,
        "words": [word.to_json() for word in words],
        "seconds": round(sum(len(piece.features) for piece in pieces) * settings.hop_ms / 1000, 3),
        "log_prob": sum(hypothesis.log_prob for hypothesis in hypotheses),
        "finished": all(hypothesis.finished for hypothesis in hypotheses),
    }
    if len(pieces) > 1:
        details["pieces"] = [
            {"start": round(piece.start, 3), "text": one.text} for piece, one in zip(pieces, alignments)
        ]
    told = list(notes)
    if not details["finished"]:
        told.append("the transcript was cut at its greatest length (max_length)")
    if apart := disagreements(words, options.max_time_difference):
        told.append(apart)
    if told:
        details["notes"] = told
    score = sum(hypothesis.score for hypothesis in hypotheses)
    return Prediction(record, _in_form(options.output_format, record, text, words), score, details)


def _in_form(form: OutputFormat, record: Record, text: str, words: Sequence[SpokenWord]) -> str:
    if form == "ctm":
        return to_ctm(str(record["audio"]), words)
    return to_srt(words) if form == "srt" else text
