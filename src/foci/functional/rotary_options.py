"""Options of rotary positions; importing them does not import torch.

    rate of pair i   r_i = base^(−2i/d),   d features that are turned
    linear           r_i / factor
    ntk              (base · factor^(d/(d−2)))^(−2i/d)
    yarn             γ_i r_i + (1 − γ_i) r_i / factor,   γ from 1 (more than beta_fast turns in the original length) to
                     0 (fewer than beta_slow); cosines and sines times attention_factor
    llama3           the same blend by turns, from high_freq_factor to low_freq_factor, along the turns themselves

Paper: RoFormer (Su et al., 2021), eq. 15, arXiv:2104.09864; YaRN (Peng et al., 2023), sections 3.1-3.4,
    arXiv:2309.00071; The Llama 3 Herd of Models (2024), section 3.2
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Literal

from foci.errors import ConfigError, check_positive
from foci.options import Options

_NEEDED: Mapping[str, tuple[str, ...]] = {
    "none": (),
    "linear": ("factor",),
    "ntk": ("factor",),
    "yarn": ("factor", "original_length"),
    "llama3": ("factor", "original_length"),
}
_OPTIONAL: Mapping[str, tuple[str, ...]] = {
    "yarn": ("beta_fast", "beta_slow", "attention_factor", "truncate"),
    "llama3": ("low_freq_factor", "high_freq_factor"),
}


@dataclass(frozen=True, kw_only=True, repr=False)
class Rotary(Options):
    """How rotary positions turn the features of query and key.

    Example:
        >>> Rotary(base=100.0)
        Rotary(base=100.0)
        >>> Rotary(base=100.0).rates(4)
        (1.0, 0.1)
        >>> Rotary(layout="half", scaling="linear", factor=2.0).rates(2)
        (0.5,)
    """

    base: float = 10000.0
    """The largest rotation takes about this number of positions per radian: theta, 10000 in RoFormer, 500000 in Llama
    3."""
    layout: Literal["interleaved", "half"] = "interleaved"
    """Which features turn together: neighbors (RoFormer, GPT-J), or feature i of the first half with feature i of the
    second (GPT-NeoX, and Llama and its kin in Hugging Face's format)."""
    rotated_dim: int | None = None
    """Features of a head that are turned, the first ones, an even number. Default: all."""
    scaling: Literal["none", "linear", "ntk", "yarn", "llama3"] = "none"
    """Change of the rates for texts longer than those of the training: all divided by factor (linear), a larger base
    (ntk), or only the slow ones divided (yarn, llama3)."""
    factor: float | None = None
    """How many times longer the texts are, for every scaling."""
    original_length: int | None = None
    """Length of the texts of the training, for yarn and llama3."""
    beta_fast: float | None = None
    """Turns within the original length from which a rate is kept, for yarn. Default: 32."""
    beta_slow: float | None = None
    """Turns within the original length up to which a rate is divided, for yarn. Default: 1."""
    attention_factor: float | None = None
    """Factor of the turned query and key, for yarn. Default: 0.1 · ln(factor) + 1."""
    truncate: bool = True
    """Round the pairs between which yarn blends to whole numbers."""
    low_freq_factor: float | None = None
    """Turns within the original length up to which a rate is divided, for llama3. Default: 1."""
    high_freq_factor: float | None = None
    """Turns within the original length from which a rate is kept, for llama3. Default: 4."""

    def __post_init__(self) -> None:
        super().__post_init__()
        owner, needed = type(self).__name__, _NEEDED[self.scaling]
        check_positive(owner, base=self.base, factor=self.factor, attention_factor=self.attention_factor)
        check_positive(owner, beta_fast=self.beta_fast, beta_slow=self.beta_slow)
        check_positive(owner, low_freq_factor=self.low_freq_factor, high_freq_factor=self.high_freq_factor)
        if self.rotated_dim is not None and self.rotated_dim % 2:
            raise ConfigError(f"{owner}: rotated_dim is {self.rotated_dim}, expected an even number (pairs turn).")
        known = {"base", "layout", "rotated_dim", "scaling", *needed, *_OPTIONAL.get(self.scaling, ())}
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None and field.name in needed:
                raise ConfigError(f"{owner}: {field.name} is None with scaling {self.scaling!r}, expected a number.")
            if value != field.default and field.name not in known:
                raise ConfigError(
                    f"{owner}: {field.name} is {value!r} with scaling {self.scaling!r}, expected it to be left out: it "
                    "has no effect."
                )

    def __repr__(self) -> str:
        changed = (field.name for field in fields(self) if getattr(self, field.name) != field.default)
        return f"Rotary({', '.join(f'{name}={getattr(self, name)!r}' for name in changed)})"

    def turned_dim(self, head_dim: int) -> int:
        """Return how many of a head's features are turned, or raise if that is not possible."""
        dim = head_dim if self.rotated_dim is None else self.rotated_dim
        if dim > head_dim:
            raise ConfigError(f"rotary: rotated_dim is {dim}, expected at most the {head_dim} features of a head.")
        if dim % 2:
            raise ConfigError(f"rotary: the vectors have {dim} features, expected an even number (they turn in pairs).")
        return dim

    @property
    def magnitude(self) -> float:
        """The factor of turned vectors."""
        if self.scaling != "yarn" or self.factor is None:
            return 1.0
        if self.attention_factor is not None:
            return self.attention_factor
        return 0.1 * math.log(self.factor) + 1.0 if self.factor > 1.0 else 1.0

    def rates(self, dim: int) -> tuple[float, ...]:
        """Return the angle per position, in radians, of each of ``dim / 2`` pairs."""
        plain = tuple(self.base ** (-feature / dim) for feature in range(0, dim, 2))
        if self.scaling == "none" or self.factor is None:
            return plain
        if self.scaling == "ntk":
            base = self.base * self.factor ** (dim / (dim - 2)) if dim > 2 else self.base
            return tuple(base ** (-feature / dim) for feature in range(0, dim, 2))
        kept = {
            "linear": lambda: [0.0] * len(plain),
            "yarn": lambda: _yarn(self, dim),
            "llama3": lambda: _llama3(self, plain),
        }[self.scaling]()
        return tuple(share * rate + (1.0 - share) * rate / self.factor for rate, share in zip(plain, kept, strict=True))


def _yarn(how: Rotary, dim: int) -> list[float]:
    """Return how much of each rate is kept: a ramp along the pairs."""

    def pair_with(turns: float) -> float:
        return dim * math.log((how.original_length or 1) / (turns * 2 * math.pi)) / (2 * math.log(how.base))

    first, last = pair_with(how.beta_fast or 32.0), pair_with(how.beta_slow or 1.0)
    if how.truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, dim - 1)
    width = last - first or 0.001
    return [1.0 - min(max((pair - first) / width, 0.0), 1.0) for pair in range(dim // 2)]


def _llama3(how: Rotary, plain: tuple[float, ...]) -> list[float]:
    """Return how much of each rate is kept: a ramp along its turns within the original length."""
    low, high = how.low_freq_factor or 1.0, how.high_freq_factor or 4.0
    turns = [(how.original_length or 1) * rate / (2 * math.pi) for rate in plain]
    return [min(max((turn - low) / (high - low), 0.0), 1.0) for turn in turns]
