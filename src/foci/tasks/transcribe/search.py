"""The search for transcripts: by the decoder, by CTC, or by both, for many recordings at once."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from foci.data import BOS, EOS, PAD
from foci.decoding import CtcJoinedDecoder, DecoderInputs, GenerationConstraints, Hypothesis, beam, greedy
from foci.errors import DataError
from foci.layers.interfaces import EncoderOutput
from foci.models.recognizer import Recognizer
from foci.tasks.frame.prediction_loop import by_length
from foci.tasks.frame.task import Progress, Record
from foci.tasks.transcribe.assets import SpeechAssets
from foci.tasks.transcribe.batches import SpeechExamples
from foci.tasks.transcribe.config import FeatureConfig, TranscribeOptions, TranscriptSearchOptions
from foci.tasks.transcribe.pieces import Piece, read_pieces
from foci.weights import Weights

_READ_TOGETHER = 16
"""Batches of frames that are held in memory: hours of sound must not be, but similar lengths should be found."""


class Answer(NamedTuple):
    """A piece, its hypotheses, best first, and its cells."""

    piece: Piece
    hypotheses: list[Hypothesis]
    encoded: EncoderOutput


class Answers(NamedTuple):
    """The answers for the pieces of a recording, in their order, and notes for the user."""

    pieces: list[Answer]
    notes: list[str]


def answer_records(
    model: Recognizer,
    assets: SpeechAssets,
    settings: FeatureConfig,
    records: Sequence[Record],
    options: TranscriptSearchOptions,
    progress: Progress,
    *,
    keep: bool = False,
) -> Iterator[tuple[int, Answers | DataError]]:
    """Yield the number of each record with the answers for its pieces, or why it cannot be used.

    They come as they are done, which is by length among those that are read together; ``keep`` keeps spectrogram and
    sound.
    """
    pieces: list[Piece] = []
    notes: dict[int, list[str]] = {}
    for number, record in enumerate(records):
        try:
            own, notes[number] = read_pieces(
                number, str(record["audio"]), settings, assets, seconds=options.max_segment_seconds, keep=keep
            )
        except DataError as error:
            progress(1)
            yield number, error
            continue
        pieces += own
        if sum(len(piece.features) for piece in pieces) >= _READ_TOGETHER * options.batch_frames:
            yield from _answer_together(model, assets, pieces, notes, options, progress)
            pieces = []
    yield from _answer_together(model, assets, pieces, notes, options, progress)


def _answer_together(
    model: Recognizer,
    assets: SpeechAssets,
    pieces: Sequence[Piece],
    notes: Mapping[int, list[str]],
    options: TranscriptSearchOptions,
    progress: Progress,
) -> Iterator[tuple[int, Answers]]:
    """Yield the answers for recordings of which these are all pieces."""
    waiting = Counter(piece.record for piece in pieces)
    answers: dict[int, list[Answer]] = defaultdict(list)
    for indices in by_length([len(piece.features) for piece in pieces], options.batch_frames):
        for answer in _answer_pieces(model, assets, [pieces[i] for i in indices], options):
            number = answer.piece.record
            answers[number].append(answer)
            if len(answers[number]) == waiting[number]:
                progress(1)
                in_order = sorted(answers.pop(number), key=lambda one: one.piece.start)
                yield number, Answers(in_order, notes[number])


def _answer_pieces(
    model: Recognizer, assets: SpeechAssets, pieces: Sequence[Piece], options: TranscriptSearchOptions
) -> list[Answer]:
    """Return the hypotheses of each piece."""
    device = next(model.parameters()).device
    examples = SpeechExamples([piece.features for piece in pieces], [[]] * len(pieces), len(assets.tokenizer))
    batch = examples.batch(np.arange(len(pieces)), examples.lengths.max(axis=0).tolist())
    encoded = model.encode(batch.features.to(device), batch.lengths.to(device))
    found = search(model, encoded, options)
    return [Answer(piece, hypotheses, _row(encoded, row)) for row, (piece, hypotheses) in enumerate(zip(pieces, found))]


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
    if options.beam == 1:
        return greedy(decoder, start, constraints=constraints)
    n_best = options.n_best if isinstance(options, TranscribeOptions) else 1
    return beam(
        decoder, start, size=options.beam, n_best=n_best, length_penalty=options.length_penalty, constraints=constraints
    )


def _row(encoded: EncoderOutput, row: int) -> EncoderOutput:
    """Return one recording of a batch, without padding."""
    cells = int(encoded.valid[row].sum())
    attentions = {
        name: Weights.from_tensor(weights.dense()[row : row + 1, :, :cells, :cells])
        for name, weights in (encoded.attentions or {}).items()
    }
    return EncoderOutput(
        encoded.values[row : row + 1, :cells],
        encoded.valid[row : row + 1, :cells],
        None if encoded.summary is None else tuple(part[row : row + 1] for part in encoded.summary),
        None if encoded.keys is None else encoded.keys[row : row + 1, :cells],
        attentions or None,
    )
