"""Another sampling rate, without aliases.

    y_n = Σ_k x_k h(n · r/r′ − k),   h(t) = c sinc(c t) w(t / width),   c = rolloff · min(1, r′/r)

The low-pass filter h is a sinc under a Kaiser window: it removes all above the Nyquist frequency of the lower rate,
which would otherwise come back as other frequencies. Of the outputs n there are only r′ / gcd(r, r′) different phases,
so that the filter is computed once for each of them.

Paper: Digital Audio Resampling (Julius O. Smith, 2002)
Names: r = rate, r′ = new_rate, h = filters, w = a Kaiser window
Complexity: O(N · r′/r · taps), taps = 2 · zeros / c
Differs: rolloff leaves a transition band of 5 % below the Nyquist frequency.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor
from torch.nn import functional as F

from foci.errors import check_positive

_ZEROS = 64
"""Zero crossings of the sinc on each side."""
_ROLLOFF = 0.95
_BETA = 11.0
"""Of the Kaiser window: about 110 dB below in the stop band."""
_CELLS = 1 << 22
"""Products at a time: 16 MB."""
_MOST_PHASES = 1024
"""Rates, divided by what they have in common, up to which one convolution is faster."""


def resample(samples: Float[ndarray, " N"], rate: int, new_rate: int) -> Float[ndarray, " M"]:
    """Return the samples at another rate; M is N · new_rate / rate, rounded up.

    Example:
        >>> resample(np.zeros(100, np.float32), 44100, 16000).shape
        (37,)
    """
    check_positive("resample", rate=rate, new_rate=new_rate)
    if rate == new_rate or len(samples) == 0:
        return samples
    return np.concatenate(list(resample_blocks([samples], rate, new_rate)))


def resample_blocks(blocks: Iterable[Float[ndarray, " _"]], rate: int, new_rate: int) -> Iterator[Float[ndarray, " M"]]:
    """Yield what `resample` gives of a whole sound, which comes in blocks, in blocks of other sizes."""
    if rate == new_rate:
        yield from blocks
        return
    common = math.gcd(rate, new_rate)
    rate, new_rate = rate // common, new_rate // common
    _, reach = _filters(rate, new_rate)
    convert = _by_convolution if max(rate, new_rate) <= _MOST_PHASES else _one_by_one
    span = 2 * reach + rate  # what is read for the outputs of all phases, ``rate`` further for the next ones
    held = np.zeros(reach, np.float32)
    read = given = 0
    for block in blocks:
        held = np.concatenate([held, block], dtype=np.float32)
        read += len(block)
        if (periods := (len(held) - span) // rate + 1) > 0:
            yield convert(torch.from_numpy(held), rate, new_rate, periods * new_rate).numpy()
            held = held[periods * rate :]
            given += periods * new_rate
    if left := -(-read * new_rate // rate) - given:
        held = np.concatenate([held, np.zeros(span, np.float32)])
        yield convert(torch.from_numpy(held), rate, new_rate, left).numpy()


def _by_convolution(padded: Tensor, rate: int, new_rate: int, count: int) -> Tensor:
    """Compute all phases with one strided convolution: ``rate`` inputs give as many outputs as there are phases."""
    outputs = F.conv1d(padded.reshape(1, 1, -1), _kernels(rate, new_rate), stride=rate)
    return outputs[0].t().flatten()[:count].contiguous()


@lru_cache(maxsize=16)
def _kernels(rate: int, new_rate: int) -> Tensor:
    """Return the filter of each phase where it begins, ``(new_rate, 1, taps + rate − 1)``."""
    filters, _ = _filters(rate, new_rate)
    taps = filters.shape[1]
    kernels = torch.zeros(new_rate, 1, taps + rate - 1)
    for number in range(new_rate):
        offset, phase = divmod(number * rate, new_rate)
        kernels[number, 0, offset : offset + taps] = filters[phase]
    return kernels


def _one_by_one(padded: Tensor, rate: int, new_rate: int, count: int) -> Tensor:
    """Take the filter of each output from the table; for rates without a common divisor."""
    filters, _ = _filters(rate, new_rate)
    taps = filters.shape[1]
    windows = padded.unfold(0, taps, 1)
    outputs = torch.empty(count)
    step = max(1, _CELLS // taps)
    for start in range(0, count, step):
        numbers = torch.arange(start, min(start + step, count)) * rate
        first, phase = torch.div(numbers, new_rate, rounding_mode="floor"), numbers % new_rate
        outputs[start : start + len(numbers)] = (windows[first] * filters[phase]).sum(dim=1)
    return outputs


@lru_cache(maxsize=16)
def _filters(rate: int, new_rate: int) -> tuple[Tensor, int]:
    """Return the filter of each phase ``(new_rate, taps)``, and the samples it needs on each side."""
    cut = _ROLLOFF * min(1.0, new_rate / rate)
    reach = math.ceil(_ZEROS / cut)
    taps = torch.arange(-reach, reach + 1, dtype=torch.float64)
    offsets = torch.arange(new_rate, dtype=torch.float64) / new_rate
    time = offsets.unsqueeze(1) - taps
    inside = (1 - (time * cut / _ZEROS).square()).clamp_min(0.0).sqrt()
    window = torch.special.i0(_BETA * inside) / torch.special.i0(torch.tensor(_BETA, dtype=torch.float64))
    window = torch.where(inside > 0, window, 0.0)
    filters = cut * torch.sinc(cut * time) * window
    return (filters / filters.sum(dim=1, keepdim=True)).float(), reach  # a constant stays what it is
