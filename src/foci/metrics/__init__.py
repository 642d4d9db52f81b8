"""Metrics, one file per family: attention weights, word alignments, labels, spans, calibration, text overlap."""

from typing import TYPE_CHECKING

from foci.lazy import attach

__all__ = [
    "alignments",
    "attention",
    "boxes",
    "calibration",
    "captions",
    "detection",
    "error_rates",
    "heads",
    "labels",
    "likelihood",
    "matched_boxes",
    "multi_label",
    "overlap",
    "ranking",
    "relevance",
    "rouge",
    "spans",
]

if TYPE_CHECKING:
    from foci.metrics import (
        alignments,
        attention,
        boxes,
        calibration,
        captions,
        detection,
        error_rates,
        heads,
        labels,
        likelihood,
        matched_boxes,
        multi_label,
        overlap,
        ranking,
        relevance,
        rouge,
        spans,
    )
else:
    __getattr__, __dir__ = attach(__name__, dict.fromkeys(__all__, __name__))
