"""Recordings as the pieces that are transcribed: read, cut at silences where they are long, and normalized."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy import ndarray

from foci.data.audio.features import normalized, read_features
from foci.data.audio.files import read_header
from foci.data.audio.segments import cut_at_silences
from foci.data.builtin import morse
from foci.errors import DataError
from foci.tasks.transcribe.assets import SpeechAssets
from foci.tasks.transcribe.batches import SpeechReader, filter_bank, is_feature_file
from foci.tasks.transcribe.config import FeatureConfig

_LONGEST = 4 * 3600.0
"""Seconds of the longest recording that is transcribed."""
_DRAWN_BINS = 40
"""Mel filters of the spectrograms in pictures."""


class Piece(NamedTuple):
    """A stretch of a recording: the number of its record, when it begins, and its features.

    ``spectrogram`` and ``samples`` are kept for pictures; the former is the features themselves where a file had them.
    """

    record: int
    start: float
    features: ndarray
    spectrogram: ndarray | None
    samples: ndarray | None


def read_pieces(
    number: int, address: str, settings: FeatureConfig, assets: SpeechAssets, *, seconds: float | None, keep: bool
) -> tuple[list[Piece], list[str]]:
    """Read a recording and cut it at silences where it is long; return the pieces, and notes for the user.

    Args:
        number: of its record.
        address: its file, or another name of it.
        settings: how sound becomes features.
        assets: of the run.
        seconds: longest piece. Default: by the lengths of the training utterances.
        keep: keep spectrogram and sound, for pictures.

    Raises:
        DataError: it cannot be used.
    """
    notes: list[str] = []
    reader = SpeechReader(filter_bank(settings), settings.deltas, upsample=True, max_seconds=_LONGEST)
    shift = settings.hop_ms / 1000
    longest, most = (seconds or frames * shift for frames in (assets.longest, assets.usual))
    samples = None
    if is_feature_file(address):
        frames = read_features(address)
        loudness = frames[:, 0]
    else:
        notes += _notes_on_sound(address, settings.sample_rate)
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
    # A model may hear less than a picture should show: a single band of all frequencies, for example.
    spectrogram = reader.bank._replace(bins=_DRAWN_BINS)(samples) if keep and samples is not None else frames
    size = settings.sample_rate * shift
    return [
        Piece(
            number,
            start * shift,
            normalized(features[start:end], settings.normalize, assets.statistics),
            spectrogram[start:end] if keep else None,
            samples[int(start * size) : int(end * size)] if keep and samples is not None else None,
        )
        for start, end in ranges
    ], notes


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
