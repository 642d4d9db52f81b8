"""Decoders: predict a target token by token, from an encoded source or without one."""

from typing import TYPE_CHECKING

from foci.lazy import attach

__all__ = ["convolutional", "feed_forward", "history", "recurrent", "transformer"]

if TYPE_CHECKING:
    from foci.models.decoders import convolutional, feed_forward, history, recurrent, transformer
else:
    __getattr__, __dir__ = attach(__name__, dict.fromkeys(__all__, __name__))
