"""The modules that run, one in the other, and what is known of each while it runs."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TypeGuard

from torch import nn

from foci.recording.bands import has_bands, of_bands
from foci.recording.blocks import has_blocks, of_blocks
from foci.recording.global_tokens import has_global_tokens, of_global_tokens
from foci.recording.joined import Pieces
from foci.recording.tape import Entry, Recording
from foci.recording.torch_calls import Flow

_JOINS = ((has_bands, of_bands), (has_blocks, of_blocks), (has_global_tokens, of_global_tokens))


@dataclass(eq=False)
class Frame:
    """A module that runs: its `forward` or, when ``reading``, its `read`."""

    module: nn.Module
    reading: bool
    fusible: bool  # it may take a fused path of torch, which is enabled only while no mode is on
    was_watching: bool  # whether the mode was on when the module was called
    is_mechanism: bool  # of foci: it returns its weights, so its own functions need not be followed
    length: int = 0  # of the source of an nn.TransformerEncoder, padding included
    called: list[nn.Module] = field(default_factory=list)
    seen: list[tuple[Recording, Entry]] = field(default_factory=list)  # functions that attend, called by itself
    answered: bool = False  # its `read` was recorded, so its `forward` need not be
    number: int = field(default_factory=itertools.count().__next__)
    edited: bool = False  # a function of torch that it called, so that the weights it returns are those before
    pieces: Pieces | None = None  # of an attention that is known when it returns


@dataclass(eq=False)
class Within:
    """A function of foci that attends, called by the innermost module, and what torch's functions in it give."""

    frame: Frame
    flows: list[Flow | None] = field(default_factory=list)


def pieces_of(module: nn.Module) -> Pieces | None:
    """Return where to keep the pieces of the module's attention, None for one that has no pieces."""
    join = next((join for fits, join in _JOINS if fits(module)), None)
    return None if join is None else Pieces(join)


def is_mechanism(module: nn.Module) -> bool:
    """Return whether the module is a mechanism of foci."""
    return type(module).__module__.startswith("foci.mechanisms.")


def is_encoder_layer(module: nn.Module) -> TypeGuard[nn.TransformerEncoderLayer]:
    """Return whether the module is torch's own layer, and of no class derived from it."""
    return type(module) is nn.TransformerEncoderLayer


def is_fusible(module: nn.Module) -> bool:
    """Return whether the module has a fused inference path, which calls none of the recorded functions."""
    if module.training:
        return False
    if isinstance(module, nn.MultiheadAttention):
        return getattr(module.forward, "__func__", None) is nn.MultiheadAttention.forward
    return is_encoder_layer(module) or type(module) is nn.TransformerEncoder
