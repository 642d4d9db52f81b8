"""A trace as one interactive page: a single HTML file that opens from disk and never asks a network for anything.

    trace.save_html("reading.html")

Everything lies inside: style, script, labels as JSON, and numbers as blocks that are packed by zlib and written in
base64. The page unpacks a head only when it is chosen, and draws only the part that is seen.

Weights are rounded to one byte: ``w ≈ q · (row's largest / 255)`` with q in 0 … 255. So a weight is off by at most
1/510 of the largest in its row, and one smaller than that reads 0. Entropies, and how much weight a trace left out, are
those of the exact weights.

Columns that the page can hide (special tokens and sinks, at most 32) are kept apart as they are, and the largest in a
row is that of the others: the rest of a row of which a sink has nearly all keeps its precision when it is scaled up.

A block of weights holds, in little-endian order, ``scale (L) f4``, ``rest (L) f4``, ``apart (A, L) f4``, and then, if
it is dense, ``q (L, S) u1``; if it is sparse, as a matrix that is mostly 0 is, ``count (L) u4``, ``step (n) u2``
(``u4`` above 65,536 columns), ``q (n) u1``, where a step is the distance from the column before in the row.
"""

from __future__ import annotations

import base64
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foci.errors import ConfigError
from foci.files import whole
from foci.metrics.attention import row_entropy
from foci.recording.head_search import HeadWeight
from foci.viz.colors import STOPS
from foci.viz.heads.answers import is_of_heads
from foci.viz.heads.roles import head_roles
from foci.viz.labels import shown
from foci.viz.page.offline import is_static, offline_page
from foci.viz.regions import reduced
from foci.viz.regrouped import sinks_of
from foci.viz.relevance import NEEDS, maps_of, rollouts
from foci.viz.shaded_words import HUES
from foci.viz.trace import Axis, TopWeights, Trace, TracedAttention
from foci.viz.views import load, views_of

_SCRIPTS = (
    *("common", "colors", "numbers", "lens", "pictures", "objects", "roles", "side", "text", "drawn", "mixed"),
    *("scrolled", "views/words", "views/heat", "views/links", "views/layers", "views/heads", "views/compare"),
    *("views/boxes", "svg", "saving", "address", "printing"),
)
"""The parts of the script, each of which may use those before it."""
_CHUNK = 1 << 22
"""How many weights are looked at together."""
_THUMBNAIL = 40
"""The most cells that a head's small picture has along a side."""
_MOST_APART = 32
"""The most columns that are kept apart."""
_ASKED = ["asked", 0.0, 0]
_MEAN = -1
"""What the page calls the mean of all heads."""
_PICTURE = 1024
"""The most pixels that an image is shown with along a side."""


def write(
    path: str | os.PathLike[str],
    traces: Sequence[Trace],
    titles: Sequence[str] = (),
    *,
    opening: str | HeadWeight | None = None,
) -> Path:
    """Write the page of one trace, or of two that are compared and need a title each, whole or not at all.

    Args:
        path: of the file.
        traces: one, or two.
        titles: of two traces.
        opening: what the page of one trace opens with; see `Trace.save_html`.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> trace = Trace.from_arrays([[0.9, 0.1], [0.2, 0.8]], ["das", "Haus"], ["the", "house"])
        >>> with TemporaryDirectory() as folder:
        ...     write(f"{folder}/alignment.html", [trace]).name
        'alignment.html'
    """
    with whole(path) as unfinished:
        unfinished.write_text(_page(traces, titles, opening), encoding="utf-8", newline="\n")
    return Path(path)


def _pack(blocks: list[str], *arrays: NDArray[Any]) -> int:
    """Add a block with the arrays one after the other; returns its number."""
    raw = b"".join(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes() for array in arrays)
    blocks.append(base64.b64encode(zlib.compress(raw)).decode("ascii"))
    return len(blocks) - 1


def _pack_image(blocks: list[str], image: NDArray[np.uint8]) -> int:
    """Add a block with an image; returns its number, or that of the same image on another axis."""
    number = _pack(blocks, image)
    if blocks.index(blocks[number]) < number:
        return blocks.index(blocks.pop())
    return number


def _page(traces: Sequence[Trace], titles: Sequence[str], opening: str | HeadWeight | None = None) -> str:
    blocks: list[str] = []
    prefixes = [f"{title} · " for title in titles] or [""]
    common = [name for name in traces[0].attentions if titles and name in traces[1].attentions]
    payload: dict[str, Any] = {
        "roles": {},
        "opening": None,
        "text": " ↔ ".join(dict.fromkeys(trace.text for trace in traces if trace.text)),
        "metadata": [],
        "axes": {},
        "attentions": [],
        "colors": {"stops": STOPS, "hues": HUES},
        "titles": list(titles),
        "pairs": [[f"{prefix}{name}" for prefix in prefixes] for name in common],
    }
    for trace, prefix in zip(traces, prefixes):
        _describe_trace(trace, prefix, payload, blocks)
    payload["roles"] = {} if titles else _describe_roles(traces[0])
    payload["opening"] = _opening_of_both(traces, prefixes[0]) if titles else _describe_opening(traces[0], opening)
    title = payload["text"] or " · ".join(attention["name"] for attention in payload["attentions"]) or "foci"
    scripts = ["script/languages", "shared", *(f"script/{part}" for part in _SCRIPTS)]
    scripts += [f"script/views/{name}" for name in views_of("page") if is_static(f"script/views/{name}.js")]
    scripts.append("script/page")
    above = "\n".join(filter(None, (view.page(trace) for trace in traces for view in load("page"))))
    return offline_page("page", scripts, title, payload, blocks, body=above)


def _describe_trace(trace: Trace, prefix: str, payload: dict[str, Any], blocks: list[str]) -> None:
    """Add one trace to what the page holds; of several each has a prefix for its names."""
    for name, value in trace.metadata.items():
        if is_of_heads(name):  # in a table above
            continue
        payload["metadata"].append([f"{prefix}{name}", value if isinstance(value, str) else f"{value:.6g}"])
    for key, axis in trace.axes.items():
        payload["axes"][f"{prefix}{key}"] = {**_describe_axis(axis, key, blocks), "sinks": sinks_of(trace, key)}
    rolled = rollouts(trace)
    for attention in trace.attentions.values():
        source = payload["axes"][f"{prefix}{attention.source}"]
        described = _describe_attention(attention, _extras(attention, rolled), blocks, _apart(attention, source))
        described["verb"] = _verb(trace, attention)
        for key in ("name", "group", "source", "target"):
            described[key] = f"{prefix}{described[key]}"
        payload["attentions"].append(described)


def _describe_roles(trace: Trace) -> dict[str, list[Any]]:
    """Return what each head does, by attention; nothing for one head alone."""
    described: dict[str, list[Any]] = {}
    for one in head_roles(trace):
        attention = trace.attention(one.name)
        if one.scores and trace.axes[attention.source].is_text and trace.axes[attention.target].is_text:
            described.setdefault(one.name, []).append(None if one.score is None else [one.role, *one.score])
    return described if sum(map(len, described.values())) > 1 else {}


def _opening_of_both(traces: Sequence[Trace], prefix: str) -> dict[str, Any] | None:
    """Return what the first trace opens with, where the second has it, too."""
    first, second = traces
    name = first.opening.attention if first.attentions else None
    if name not in second.attentions or first.attention(name).shape[0] != second.attention(name).shape[0]:
        return None
    described = _describe_opening(first, None)
    return {**described, "attention": f"{prefix}{name}"} if described else None


def _describe_opening(trace: Trace, opening: str | HeadWeight | None) -> dict[str, Any] | None:
    if isinstance(opening, HeadWeight):
        place = trace.attention(opening.path).head_numbers.index(opening.head)
        at = {"target": opening.query[0], "source": opening.key[0]}
        return {"attention": opening.path, "head": place, **at, "why": _ASKED}
    if not trace.attentions:
        return None
    if opening is None:
        found = trace.opening
        place = found.head if found.head is not None else _MEAN if trace.attention(found.attention).heads > 1 else 0
        why = [found.reason, round(found.nats, 4), found.among] if found.reason else None
        return {"attention": found.attention, "head": place, "target": found.row or 0, "source": None, "why": why}
    maps = maps_of(trace, opening)
    if not maps:
        raise ConfigError(f"save_html: there is no {opening} in this trace. {NEEDS[opening]}")
    shown = trace.cross_attentions()[0]
    attention = shown if shown.name in maps else trace.attention([*maps][-1])
    extras = list(_extras(attention, rollouts(trace)))
    return {"attention": attention.name, "head": attention.heads + extras.index(opening), "why": _ASKED}


def _extras(attention: TracedAttention, rolled: dict[str, NDArray[np.float32]]) -> dict[str, NDArray[np.float32]]:
    """Return the further maps of an attention: those that it has, and the rollout."""
    return {**attention.extras, **({"rollout": rolled[attention.name]} if attention.name in rolled else {})}


def _verb(trace: Trace, attention: TracedAttention) -> str:
    """What rows do with columns: they read them, write to them, or have them as tags."""
    if trace.axes[attention.source].kind == "tags":
        return "tags"
    return "writes" if attention.kind == "write" else "reads"


def _describe_axis(axis: Axis, key: str, blocks: list[str]) -> dict[str, Any]:
    visible = {index: shown(label) for index, label in enumerate(axis.labels)}
    described: dict[str, Any] = {
        "kind": axis.kind,
        "labels": axis.labels,
        "shown": {index: text for index, text in visible.items() if text != axis.labels[index]},
        "title": axis.title or key,
        "rightToLeft": axis.right_to_left,
        "grid": axis.grid,
        "seconds": axis.seconds,
        "start": axis.start,
        "sentences": axis.sentences,
        "words": _describe_words(axis),
        "special": axis.special_tokens,
    }
    if axis.image is not None:
        image = reduced(axis.image, _PICTURE)
        sizes = {"height": image.shape[0], "width": image.shape[1], "whole": axis.image.shape[:2]}
        described["image"] = {**sizes, "block": _pack_image(blocks, image)}
    if axis.boxes is not None:
        described["boxes"] = axis.boxes.round(5).tolist()
    if axis.parts is not None:
        described["parts"] = [
            {**_describe_axis(part, "", blocks), "begin": start, "end": start + len(part)}
            for start, part in axis.placed_parts
        ]
    if axis.spectrogram is not None:
        sound = axis.spectrogram - axis.spectrogram.min()
        shades = np.rint(sound * (255 / max(float(sound.max()), 1e-12))).astype(np.uint8)
        described["spectrogram"] = {"steps": sound.shape[0], "bins": sound.shape[1], "block": _pack(blocks, shades)}
    return described


def _describe_words(axis: Axis) -> list[tuple[str, int]] | None:
    """Return the words of an axis with how many positions they have; None where each position is one."""
    words = axis.joined_words
    return [(shown(word.label), word.pieces) for word in words] if len(words) < len(axis) else None


def _describe_attention(
    attention: TracedAttention, extras: dict[str, NDArray[np.float32]], blocks: list[str], apart: list[int]
) -> dict[str, Any]:
    heads, rows, columns = attention.shape
    slots: list[tuple[TracedAttention, int | None]] = [(attention, None)] if heads > 1 else []
    slots += [(attention, head) for head in range(heads)]
    for weights in extras.values():
        slots.append((TracedAttention(attention.name, attention.source, attention.target, weights[None]), 0))
    matrices, thumbnails, entropies = [], [], []
    for maps, head in slots:
        matrices.append(_describe_matrix(maps, head, blocks, apart))
        thumbnails.append(_thumbnail(maps, head))
        entropies.append(_entropy(maps, head))
    return {
        "name": attention.name,
        "group": attention.stack,
        "layer": attention.layer,
        "source": attention.source,
        "target": attention.target,
        "heads": heads,
        "numbers": attention.head_numbers,
        "extras": list(extras),
        "rows": rows,
        "columns": columns,
        "kept": attention.weights.values.shape[-1] if isinstance(attention.weights, TopWeights) else None,
        "apart": apart,
        "matrices": matrices,
        "thumbnails": {
            "height": thumbnails[0].shape[0] if thumbnails else 0,
            "width": thumbnails[0].shape[1] if thumbnails else 0,
            "block": _pack(blocks, *thumbnails),
        },
        "entropy": _pack(blocks, *entropies),
        "points": _describe_points(attention, blocks),
        "hidden": None if attention.hidden is None else _pack(blocks, *_hidden_shares(attention.hidden)),
    }


def _describe_points(attention: TracedAttention, blocks: list[str]) -> dict[str, Any] | None:
    if attention.points is None:
        return None
    return {"count": attention.points.shape[2], "block": _pack(blocks, attention.points.astype(np.float32))}


def _apart(attention: TracedAttention, source: dict[str, Any]) -> list[int]:
    """Return the columns that are kept as they are: of those that the page can hide, the ones that are read most."""
    hideable = sorted({*source["special"], *source["sinks"]})
    if len(hideable) > _MOST_APART:
        means = attention.dense().mean(axis=0)
        hideable = sorted(sorted(hideable, key=lambda place: -means[place])[:_MOST_APART])
    return hideable


def _describe_matrix(
    attention: TracedAttention, head: int | None, blocks: list[str], apart: list[int]
) -> dict[str, Any]:
    """One head, or the mean of all, as a block; whichever form has fewer bytes."""
    _, rows, columns = attention.shape
    step_type = np.dtype(np.uint16 if columns <= 1 << 16 else np.uint32)
    scales, nonzero = [np.zeros(0, np.float32)], 0
    exact = [np.zeros((0, len(apart)), np.float32)]
    for piece in _pieces(attention, head):
        exact.append(piece[:, apart])
        others = np.delete(piece, apart, axis=1)
        scales.append(others.max(axis=1, initial=0.0) / np.float32(255))
        nonzero += int(np.count_nonzero(_quantize(piece, scales[-1], apart)))
    sparse = nonzero * (1 + step_type.itemsize) + 4 * rows < rows * columns
    counts, steps, bytes_ = [np.zeros(0, np.uint32)], [np.zeros(0, step_type)], [np.zeros(0, np.uint8)]
    for piece, scale in zip(_pieces(attention, head), scales[1:]):
        quantized = _quantize(piece, scale, apart)
        if not sparse:
            bytes_.append(quantized.ravel())
            continue
        at_row, at_column = np.nonzero(quantized)
        distance = np.diff(at_column, prepend=0)
        first_of_row = np.diff(at_row, prepend=-1) > 0
        counts.append(np.bincount(at_row, minlength=len(piece)).astype(np.uint32))
        steps.append(np.where(first_of_row, at_column, distance).astype(step_type))
        bytes_.append(quantized[at_row, at_column])
    kept = [np.concatenate(scales), _rest(attention, head), np.concatenate(exact).T]
    if sparse:
        kept += [np.concatenate(counts), np.concatenate(steps)]
    return {"sparse": sparse, "block": _pack(blocks, *kept, np.concatenate(bytes_))}


def _quantize(weights: NDArray[np.float32], scale: NDArray[np.float32], apart: list[int]) -> NDArray[np.uint8]:
    """Return the weights as bytes; of those that are kept apart, whether there is any."""
    levels = np.rint(weights / np.where(scale > 0, scale, np.float32(1))[:, None])
    levels[:, apart] = weights[:, apart] > 0
    return levels.astype(np.uint8)


def _pieces(attention: TracedAttention, head: int | None) -> Iterator[NDArray[np.float32]]:
    """The rows of one head, or of the mean of all, some at a time."""
    _, rows, columns = attention.shape
    step = max(1, _CHUNK // max(columns, 1))
    for start in range(0, rows, step):
        some = slice(start, min(start + step, rows))
        weights = attention.weights
        kept = weights.part(rows=some) if isinstance(weights, TopWeights) else weights[:, some]
        yield TracedAttention(attention.name, attention.source, attention.target, kept).dense(head)


def _rest(attention: TracedAttention, head: int | None) -> NDArray[np.float32]:
    """How much of each row's weight the trace did not keep."""
    if not isinstance(attention.weights, TopWeights):
        return np.zeros(attention.shape[1], np.float32)
    rest: NDArray[np.float32] = attention.weights.rest.mean(axis=0) if head is None else attention.weights.rest[head]
    return rest


def _hidden_shares(hidden: NDArray[np.float32]) -> list[NDArray[np.float32]]:
    """Return the hidden share of each row: of the mean of all heads, if there are several, and of each head."""
    return [*([hidden.mean(axis=0)] if len(hidden) > 1 else []), *hidden]


def _entropy(attention: TracedAttention, head: int | None) -> NDArray[np.float32]:
    """Return the entropy of each row ``(L)`` of a head or the mean; NaN where it is unknown or there is no weight."""
    _, rows, columns = attention.shape
    if isinstance(attention.weights, TopWeights):
        if head is None:
            return np.full(rows, np.nan, np.float32)
        entropy, total = attention.weights.entropy[head], attention.weights.values[head].sum(axis=-1)
    else:
        weights = attention.dense(head)
        total = weights.sum(axis=-1)
        # Rows of weights add up to 1; those of further maps, such as attention × gradient, need not.
        shares = weights / np.where(total > 0, total, 1)[:, None] if columns else weights
        entropy = row_entropy(weights if np.allclose(total[total > 0], 1, atol=1e-3) else shares)
    return np.where(total > 0, entropy, np.nan).astype(np.float32)


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
