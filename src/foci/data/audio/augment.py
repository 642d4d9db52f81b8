"""More sound than there is: other speeds, and stretches of time and frequency that are masked.

SpecAugment masks some stretches of time and of features with 0, the mean of normalized features, so that a model cannot
rely on any single one of them. Speed perturbation plays a recording faster or slower, pitch included.

Paper: SpecAugment: A Simple Data Augmentation Method for Automatic Speech Recognition (Park et al., 2019), section 2;
    Audio Augmentation for Speech Recognition (Ko et al., 2015)
Names: F = feature_width, m_F = feature_masks, T = time_width, m_T = time_masks, p = time_share
Complexity: O(B · T · F)
Differs: without time warping, which Park et al. found to help least.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from foci.data.audio.resample import resample
from foci.errors import check_positive


class Masking(NamedTuple):
    """How much SpecAugment masks.

    Attributes:
        feature_masks, feature_width: number of masks over features, and the largest width of each.
        time_masks, time_width: the same over frames.
        time_share: a mask over frames covers at most this share of an utterance.
    """

    feature_masks: int = 2
    feature_width: int = 10
    time_masks: int = 2
    time_width: int = 40
    time_share: float = 0.2


def spec_augment(
    features: Float[Tensor, "B T F"], lengths: Int[Tensor, " B"], masking: Masking
) -> Float[Tensor, "B T F"]:
    """Return the features with random stretches set to 0, different ones in each utterance; torch's generator draws."""
    rows, frames, bins = features.shape
    keep = torch.ones(rows, frames, bins, dtype=torch.bool, device=features.device)
    sizes = torch.full((rows,), bins, device=features.device)
    for _ in range(masking.feature_masks):
        widths = sizes.clamp_max(masking.feature_width)
        keep &= ~_stretch(sizes, widths, bins).unsqueeze(1)
    for _ in range(masking.time_masks):
        widths = (lengths * masking.time_share).long().clamp_max(masking.time_width)
        keep &= ~_stretch(lengths, widths, frames).unsqueeze(2)
    return features * keep


def _stretch(lengths: Tensor, widths: Tensor, size: int) -> Tensor:
    """Return a random stretch of each row, from 0 to ``widths`` long: ``(row, size)``."""
    width = (torch.rand(len(lengths), device=lengths.device) * (widths + 1)).long()
    start = (torch.rand(len(lengths), device=lengths.device) * (lengths - width + 1)).long()
    place = torch.arange(size, device=lengths.device)
    return (place >= start.unsqueeze(1)) & (place < (start + width).unsqueeze(1))


def at_speed(samples: Float[ndarray, " N"], speed: float) -> Float[ndarray, " M"]:
    """Return the samples of a recording played at another speed, such as 1.1: shorter, and higher in pitch.

    Example:
        >>> at_speed(np.zeros(1100, np.float32), 1.1).shape
        (1000,)
    """
    check_positive("at_speed", speed=speed)
    ratio = Fraction(speed).limit_denominator(100)
    return resample(samples, ratio.numerator, ratio.denominator)


def frames_at_speed(features: Float[ndarray, "T F"], speed: float) -> Float[ndarray, "U F"]:
    """Return features at another speed where there is no sound: linear between frames, without a change of pitch."""
    check_positive("frames_at_speed", speed=speed)
    count = max(1, round(len(features) / speed))
    places = np.linspace(0, len(features) - 1, count)
    left = np.floor(places).astype(np.int64)
    right = np.minimum(left + 1, len(features) - 1)
    share = (places - left).astype(np.float32)[:, None]
    mixed: ndarray = features[left] * (1 - share) + features[right] * share
    return mixed
