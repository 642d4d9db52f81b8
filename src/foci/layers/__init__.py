"""Blocks that are not attention."""

from typing import TYPE_CHECKING

from foci.lazy import attach

__all__ = [
    "conv",
    "copying",
    "coverage",
    "dropout",
    "embedding",
    "feed_forward",
    "incremental",
    "interfaces",
    "positions",
    "recurrent",
    "token_loss",
    "transformer",
]

if TYPE_CHECKING:
    from foci.layers import (
        conv,
        copying,
        coverage,
        dropout,
        embedding,
        feed_forward,
        incremental,
        interfaces,
        positions,
        recurrent,
        token_loss,
        transformer,
    )
else:
    __getattr__, __dir__ = attach(__name__, dict.fromkeys(__all__, __name__))
