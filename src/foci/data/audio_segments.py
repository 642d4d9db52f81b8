"""Long recordings cut at their silences."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from foci.errors import check_positive

_SMOOTH = 0.3
"""Seconds over which loudness is averaged: shorter pauses lie inside of words."""


def cut_at_silences(loudness: Float[ndarray, " T"], shift: float, longest: float) -> list[tuple[int, int]]:
    """Return pieces ``(first frame, after the last)`` of at most ``longest`` seconds, cut where it is quietest.

    Each cut lies in the second half of what a piece may hold, so that no piece but the last is shorter than half.

    Args:
        loudness: of each frame, on any scale.
        shift: seconds from one frame to the next.
        longest: seconds of the longest piece.

    Example:
        >>> loud = np.ones(100)
        >>> loud[55:65] = 0.0
        >>> cut_at_silences(loud, 0.1, 8.0)
        [(0, 60), (60, 100)]
    """
    check_positive("cut_at_silences", shift=shift, longest=longest)
    most = max(2, int(longest / shift))
    width = max(1, round(_SMOOTH / shift)) | 1
    padded = np.pad(np.asarray(loudness, np.float64), width // 2, mode="edge")
    smooth = np.convolve(padded, np.full(width, 1 / width), mode="valid")
    pieces, start = [], 0
    while len(loudness) - start > most:
        quiet = smooth[start + most // 2 : start + most]
        # The middle of the first longest stretch that is as quiet as the quietest frame.
        places = np.flatnonzero(quiet <= quiet.min() + 1e-6 * (1 + abs(quiet.min())))
        runs = np.split(places, np.flatnonzero(np.diff(places) > 1) + 1)
        run = max(runs, key=len)
        cut = start + most // 2 + int(run[len(run) // 2])
        pieces.append((start, cut))
        start = cut
    return [*pieces, (start, len(loudness))]
