"""A trace as one interactive page: a single HTML file that opens from disk and never asks a network for anything.

    save_html(trace, "reading.html")

Everything lies inside: style, script, labels as JSON, and numbers as blocks that are packed by zlib and written in
base64. The page unpacks a head only when it is chosen, and draws only the part that is seen.

Weights are rounded to one byte: ``w ≈ q · (row's largest / 255)`` with q in 0 … 255. So a weight is off by at most
1/510 of the largest in its row, and one smaller than that reads 0. Entropies, and how much weight a trace left out, are
those of the exact weights.

A block of weights holds, in little-endian order, ``scale (L) f4``, ``rest (L) f4``, and then, if it is dense,
``q (L, S) u1``; if it is sparse, as a matrix that is mostly 0 is, ``count (L) u4``, ``step (n) u2`` (``u4`` above
65,536 columns), ``q (n) u1``, where a step is the distance from the column before in the row.

Labels are text: the script sets them by `textContent`, the JSON has no ``<`` that could end it, and the page's policy
lets no script run but its own.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foci.files import whole
from foci.viz.page_tags import tagged_html
from foci.viz.trace import Cells, TopWeights, Trace, TracedAttention

_SCRIPTS = ("languages", "common", "numbers", "side", "words", "scrolled", "heat", "links", "heads", "page")
"""The parts of the script, each of which may use those before it."""
_CHUNK = 1 << 22
"""How many weights are looked at together."""
_THUMBNAIL = 40
"""The most cells that a head's small picture has along a side."""
_PICTURE = 1024
"""The most pixels that an image is shown with along a side."""


def save_html(trace: Trace, path: str | os.PathLike[str]) -> Path:
    """Write the page; the file appears whole or not at all.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> trace = Trace.from_arrays([[0.9, 0.1], [0.2, 0.8]], ["das", "Haus"], ["the", "house"])
        >>> with TemporaryDirectory() as folder:
        ...     save_html(trace, f"{folder}/alignment.html").name
        'alignment.html'
    """
    with whole(path) as unfinished:
        unfinished.write_text(_page(trace), encoding="utf-8", newline="\n")
    return Path(path)


@dataclass
class _Blocks:
    """Numbers on their way into the page."""

    packed: list[str] = field(default_factory=list)

    def add(self, *arrays: NDArray[Any]) -> int:
        """Keep the arrays one after the other; returns the block's number."""
        raw = b"".join(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes() for array in arrays)
        self.packed.append(base64.b64encode(zlib.compress(raw)).decode("ascii"))
        return len(self.packed) - 1


def _page(trace: Trace) -> str:
    frame, style = _static("page.html"), _static("page.css")
    script = '"use strict";\n(() => {\n' + "\n".join(_static(f"script/{name}.js") for name in _SCRIPTS) + "})();\n"
    blocks = _Blocks()
    payload = {
        "text": trace.text,
        "facts": [[name, value if isinstance(value, str) else f"{value:.6g}"] for name, value in trace.facts.items()],
        "cells": {key: _describe_cells(cells, blocks) for key, cells in trace.cells.items()},
        "attentions": [_describe_attention(attention, blocks) for attention in trace.attentions.values()],
    }
    policy = (
        f"default-src 'none'; script-src '{_fingerprint(script)}'; style-src '{_fingerprint(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    parts = {
        "policy": policy,
        "title": _plain(trace.text or " · ".join(trace.attentions) or "foci"),
        "style": style,
        "tagged": tagged_html(trace),
        "trace": json.dumps(payload, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"),
        "blocks": "\n".join(
            f'<script type="application/octet-stream" id="block-{number}">{block}</script>'
            for number, block in enumerate(blocks.packed)
        ),
        "script": script,
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], frame)


def _static(name: str) -> str:
    return files("foci.viz").joinpath("static", name).read_text(encoding="utf-8")


def _plain(text: str) -> str:
    """Text as HTML, also where it has half of a character that UTF-8 cannot write."""
    return html.escape(text[:200]).encode("ascii", "xmlcharrefreplace").decode("ascii")


def _fingerprint(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


def _describe_cells(cells: Cells, blocks: _Blocks) -> dict[str, Any]:
    described: dict[str, Any] = {
        "kind": cells.kind,
        "labels": cells.labels,
        "title": cells.title,
        "rightToLeft": cells.right_to_left,
        "grid": cells.grid,
        "seconds": cells.seconds,
        "sentences": cells.sentences,
    }
    if cells.image is not None:
        image = _smaller(cells.image)
        described["image"] = {"height": image.shape[0], "width": image.shape[1], "block": blocks.add(image)}
    if cells.spectrogram is not None:
        sound = cells.spectrogram - cells.spectrogram.min()
        shades = np.rint(sound * (255 / max(float(sound.max()), 1e-12))).astype(np.uint8)
        described["spectrogram"] = {"steps": sound.shape[0], "bins": sound.shape[1], "block": blocks.add(shades)}
    return described


def _smaller(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The image with at most `_PICTURE` pixels a side, each the mean of those it stands for."""
    factor = -(-max(image.shape[:2]) // _PICTURE)
    if factor <= 1:
        return image
    height, width = (size // factor for size in image.shape[:2])
    tiles = image[: height * factor, : width * factor].reshape(height, factor, width, factor, 3)
    mean: NDArray[np.uint8] = np.rint(tiles.mean(axis=(1, 3))).astype(np.uint8)
    return mean


def _describe_attention(attention: TracedAttention, blocks: _Blocks) -> dict[str, Any]:
    heads, rows, columns = attention.shape
    layer = attention.layer
    group = attention.name
    if layer is not None:
        group = re.sub(rf"(^|[._])0*{layer}(?=$|[._:#])", r"\1*", group, count=1)
    shown: list[int | None] = [*([None] if heads > 1 else []), *range(heads)]
    matrices, thumbnails = [], []
    for head in shown:
        matrices.append(_describe_matrix(attention, head, blocks))
        thumbnails.append(_thumbnail(attention, head))
    return {
        "name": attention.name,
        "group": group,
        "layer": layer,
        "source": attention.source,
        "target": attention.target,
        "heads": heads,
        "rows": rows,
        "columns": columns,
        "kept": attention.weights.values.shape[-1] if isinstance(attention.weights, TopWeights) else None,
        "matrices": matrices,
        "thumbnails": {
            "height": thumbnails[0].shape[0] if thumbnails else 0,
            "width": thumbnails[0].shape[1] if thumbnails else 0,
            "block": blocks.add(*thumbnails),
        },
        "entropy": blocks.add(*_entropies(attention)),
    }


def _describe_matrix(attention: TracedAttention, head: int | None, blocks: _Blocks) -> dict[str, Any]:
    """One head, or the mean of all, as a block; whichever form has fewer bytes."""
    _, rows, columns = attention.shape
    step_type = np.dtype(np.uint16 if columns <= 1 << 16 else np.uint32)
    scales, nonzero = [np.zeros(0, np.float32)], 0
    for piece in _pieces(attention, head):
        scales.append(piece.max(axis=1, initial=0.0) / np.float32(255))
        nonzero += int(np.count_nonzero(_quantise(piece, scales[-1])))
    sparse = nonzero * (1 + step_type.itemsize) + 4 * rows < rows * columns
    counts, steps, bytes_ = [np.zeros(0, np.uint32)], [np.zeros(0, step_type)], [np.zeros(0, np.uint8)]
    for piece, scale in zip(_pieces(attention, head), scales[1:]):
        quantised = _quantise(piece, scale)
        if not sparse:
            bytes_.append(quantised.ravel())
            continue
        at_row, at_column = np.nonzero(quantised)
        distance = np.diff(at_column, prepend=0)
        first_of_row = np.diff(at_row, prepend=-1) > 0
        counts.append(np.bincount(at_row, minlength=len(piece)).astype(np.uint32))
        steps.append(np.where(first_of_row, at_column, distance).astype(step_type))
        bytes_.append(quantised[at_row, at_column])
    kept = [np.concatenate(scales), _rest(attention, head)]
    if sparse:
        kept += [np.concatenate(counts), np.concatenate(steps)]
    return {"sparse": sparse, "block": blocks.add(*kept, np.concatenate(bytes_))}


def _quantise(weights: NDArray[np.float32], scale: NDArray[np.float32]) -> NDArray[np.uint8]:
    return np.rint(weights / np.where(scale > 0, scale, np.float32(1))[:, None]).astype(np.uint8)


def _pieces(attention: TracedAttention, head: int | None) -> Iterator[NDArray[np.float32]]:
    """The rows of one head, or of the mean of all, some at a time."""
    _, rows, columns = attention.shape
    step = max(1, _CHUNK // max(columns, 1))
    for start in range(0, rows, step):
        some = slice(start, min(start + step, rows))
        weights: NDArray[np.float32] | TopWeights
        if isinstance(attention.weights, TopWeights):
            values, indices, rest, entropy, size = attention.weights
            weights = TopWeights(values[:, some], indices[:, some], rest[:, some], entropy[:, some], size)
        else:
            weights = attention.weights[:, some]
        yield TracedAttention(attention.name, attention.source, attention.target, weights).dense(head)


def _rest(attention: TracedAttention, head: int | None) -> NDArray[np.float32]:
    """How much of each row's weight the trace did not keep."""
    if not isinstance(attention.weights, TopWeights):
        return np.zeros(attention.shape[1], np.float32)
    rest: NDArray[np.float32] = attention.weights.rest.mean(axis=0) if head is None else attention.weights.rest[head]
    return rest


def _entropies(attention: TracedAttention) -> list[NDArray[np.float32]]:
    """Of the mean where there are several heads, then of each head, ``(L)``; NaN where it cannot be known."""
    of_heads = [attention.entropy()]
    if attention.heads <= 1:
        return of_heads
    _, rows, _ = attention.shape
    if isinstance(attention.weights, TopWeights):
        return [np.full(rows, np.nan, np.float32), *of_heads]
    mean = TracedAttention(attention.name, attention.source, attention.target, attention.dense()[None])
    return [mean.entropy(), *of_heads]


def _thumbnail(attention: TracedAttention, head: int | None) -> NDArray[np.uint8]:
    """The largest weight of each tile of the matrix, 255 the largest of all."""
    _, rows, columns = attention.shape
    height, width = min(rows, _THUMBNAIL), min(columns, _THUMBNAIL)
    picture = np.zeros((height, width), np.float32)
    if not picture.size:
        return picture.astype(np.uint8)
    starts = np.arange(width) * columns // width
    row = 0
    for piece in _pieces(attention, head):
        tiles = (np.arange(row, row + len(piece)) * height) // rows
        np.maximum.at(picture, tiles, np.maximum.reduceat(piece, starts, axis=1))
        row += len(piece)
    shades: NDArray[np.uint8] = np.rint(picture * (255 / max(float(picture.max()), 1e-30))).astype(np.uint8)
    return shades
