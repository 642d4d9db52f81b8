"""Traces as files: labels and metadata in JSON, numbers in safetensors. Nothing that is loaded can run.

    x.json          {"format": "foci.trace", "version": 2, "numbers": sha256 of x.safetensors, "text", "metadata",
                     "axes": {key: {kind, labels, …}}, "attentions": [{name, source, target, size, heads,
                     derived}], "probe"}
    x.safetensors   "attention.0.weights" (H, L, S), or .values, .indices, .rest, .entropy; "axes.image.image", …

Each file appears whole or not at all, and the sum in the first tells whether the second belongs to it.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foci.errors import DataError, FociError, MissingPackageError
from foci.files import read_bytes, whole
from foci.viz.trace import Axis, TopWeights, Trace, TracedAttention

FORMAT = "foci.trace"
VERSION = 2
_PLAIN = ("kind", "labels", "title", "grid", "seconds", "sentences", "marks", "rate", "start", "words", "special")
_PICTURES = ("image", "spectrogram", "sound", "boxes")
_PARTS = ("values", "indices", "rest", "entropy")


def save(trace: Trace, path: str | os.PathLike[str]) -> Path:
    """Write both files; returns the path of the JSON."""
    tensors: dict[str, NDArray[Any]] = {}
    sides: dict[str, dict[str, Any]] = {}
    for key, axis in trace.axes.items():
        sides[key] = _fields(axis, f"axes.{key}", tensors)
    entries: list[dict[str, Any]] = []
    for number, attention in enumerate(trace.attentions.values()):
        entries.append({"name": attention.name, "source": attention.source, "target": attention.target})
        weights = attention.weights
        if isinstance(weights, TopWeights):
            entries[-1]["size"] = weights.size
            tensors |= {f"attention.{number}.{part}": getattr(weights, part) for part in _PARTS}
        else:
            tensors[f"attention.{number}.weights"] = np.ascontiguousarray(weights)
        if attention.selected is not None:
            entries[-1]["heads"] = attention.selected
        if attention.derived:
            entries[-1]["derived"] = True
        if attention.hidden is not None:
            tensors[f"attention.{number}.hidden"] = np.ascontiguousarray(attention.hidden)
        if attention.points is not None:
            tensors[f"attention.{number}.points"] = np.ascontiguousarray(attention.points)
        tensors |= {f"attention.{number}.extra.{name}": extra for name, extra in attention.extras.items()}
    numbers = _safetensors().save(tensors)
    text = {
        "format": FORMAT,
        "version": VERSION,
        "numbers": hashlib.sha256(numbers).hexdigest(),
        "text": trace.text,
        "metadata": trace.metadata,
        "axes": sides,
        "attentions": entries,
        **({} if trace.probe is None else {"probe": trace.probe}),
    }
    try:
        encoded = json.dumps(text, ensure_ascii=False, indent=1, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise DataError(f"Trace.save: metadata must be texts and finite numbers ({error}).") from error
    labels_path, numbers_path = _paths(path)
    with whole(numbers_path) as unfinished:
        unfinished.write_bytes(numbers)
    with whole(labels_path) as unfinished:
        unfinished.write_text(encoded, encoding="utf-8", errors="surrogatepass")
    return labels_path


def load(path: str | os.PathLike[str]) -> Trace:
    """Read both files, by either's name or the name without ending."""
    labels_path, numbers_path = _paths(path)
    for wanted in (labels_path, numbers_path):
        if not wanted.is_file():
            raise DataError(f"Trace.load: there is no file {wanted}. A trace is two files, .json and .safetensors.")
    try:
        text = json.loads(read_bytes(labels_path).decode("utf-8", errors="surrogatepass"))
    except ValueError as error:
        raise DataError(f"Trace.load: {labels_path} is not JSON ({error}). It is damaged, or another file.") from error
    if not isinstance(text, dict) or text.get("format") != FORMAT:
        raise DataError(f"Trace.load: {labels_path} is JSON, but no trace: it does not say format {FORMAT!r}.")
    if text.get("version") != VERSION:
        raise DataError(
            f"Trace.load: {labels_path} is of version {text.get('version')}, but this foci reads version {VERSION}. "
            "Update foci, or save the trace again."
        )
    numbers = numbers_path.read_bytes()
    if hashlib.sha256(numbers).hexdigest() != text.get("numbers"):
        raise DataError(
            f"Trace.load: {numbers_path} is not the file {labels_path.name} was saved with: it is damaged, or of "
            "another trace. Save the trace again, and keep its two files together."
        )
    try:
        return _assemble(text, _safetensors().load(numbers))
    except FociError as error:
        raise DataError(f"Trace.load: {labels_path} does not fit together: {error}") from error
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise DataError(f"Trace.load: {labels_path} is damaged ({type(error).__name__}: {error}).") from error


def _assemble(text: dict[str, Any], tensors: dict[str, NDArray[Any]]) -> Trace:
    axes = {key: _axis(side, f"axes.{key}", tensors) for key, side in text["axes"].items()}
    attentions = {}
    for number, entry in enumerate(text["attentions"]):
        weights: NDArray[np.float32] | TopWeights
        if "size" in entry:
            values, indices, rest, entropy = (tensors[f"attention.{number}.{part}"] for part in _PARTS)
            if indices.shape != values.shape or indices.min(initial=0) < 0 or indices.max(initial=0) >= entry["size"]:
                raise DataError(f"the positions of {entry['name']!r} lie outside of its {entry['size']} columns.")
            weights = TopWeights(values, indices, rest, entropy, entry["size"])
        else:
            weights = tensors[f"attention.{number}.weights"]
        selected = tuple(entry["heads"]) if "heads" in entry else None
        begins = f"attention.{number}.extra."
        extras = {name.removeprefix(begins): tensor for name, tensor in tensors.items() if name.startswith(begins)}
        attentions[entry["name"]] = TracedAttention(
            entry["name"],
            entry["source"],
            entry["target"],
            weights,
            selected,
            extras,
            bool(entry.get("derived")),
            tensors.get(f"attention.{number}.hidden"),
            tensors.get(f"attention.{number}.points"),
        )
    return Trace(axes, attentions, text["text"], text["metadata"], text.get("probe"))


def _fields(axis: Axis, name: str, tensors: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """Return what JSON holds of an axis, and add its pictures and sounds to the tensors."""
    fields: dict[str, Any] = {field: value for field in _PLAIN if (value := getattr(axis, field)) is not None}
    for field in _PICTURES:
        if getattr(axis, field) is not None:
            tensors[f"{name}.{field}"] = np.ascontiguousarray(getattr(axis, field))
    if axis.parts is not None:
        fields["parts"] = [_fields(part, f"{name}.parts.{number}", tensors) for number, part in enumerate(axis.parts)]
    return fields


def _axis(side: dict[str, Any], name: str, tensors: dict[str, NDArray[Any]]) -> Axis:
    fields: dict[str, Any] = {field: tensors.get(f"{name}.{field}") for field in _PICTURES}
    fields |= {field: tuple(value) if isinstance(value, list) else value for field, value in side.items()}
    if "parts" in side:
        fields["parts"] = tuple(
            _axis(part, f"{name}.parts.{number}", tensors) for number, part in enumerate(side["parts"])
        )
    return Axis(**fields)


def _paths(path: str | os.PathLike[str]) -> tuple[Path, Path]:
    path = Path(path)
    stem = path.stem if path.suffix in (".json", ".safetensors") else path.name
    return path.with_name(f"{stem}.json"), path.with_name(f"{stem}.safetensors")


def _safetensors() -> Any:
    try:
        import safetensors.numpy
    except ImportError as error:
        raise MissingPackageError("files of traces need safetensors. Install it: pip install 'foci[viz]'") from error
    return safetensors.numpy
