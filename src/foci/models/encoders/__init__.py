"""Encoders: from a source to `foci.layers.interfaces.EncoderOutput`."""

from typing import TYPE_CHECKING

from foci.lazy import attach

__all__ = ["convolutional", "frozen", "image_grid", "recurrent", "smoothed", "speech", "transformer"]

if TYPE_CHECKING:
    from foci.models.encoders import convolutional, frozen, image_grid, recurrent, smoothed, speech, transformer
else:
    __getattr__, __dir__ = attach(__name__, dict.fromkeys(__all__, __name__))
