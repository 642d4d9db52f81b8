"""What the attentions of Hugging Face models are called in traces: ``encoder.0.self``, ``decoder.0.self``, …"""

from __future__ import annotations

from collections.abc import Iterable

from foci.errors import DataError
from foci.huggingface.loading import Loaded
from foci.recording import Recording

_CROSS = ("cross", "encoder_attn", "EncDecAttention")
"""What modules of transformers that attend from decoder to encoder are called."""
AXES = {
    "encoder.{}.self": ("source", "source"),
    "decoder.{}.self": ("target", "input"),
    "decoder.{}.cross": ("target", "source"),
}
"""An attention's name, with a place for the layer's number -> which axes attend to which."""


def kind_of(loaded: Loaded, path: str) -> str:
    """Return the name of the attention at this path, as a key of `AXES`."""
    if not loaded.answers:
        return f"{'decoder' if loaded.is_causal else 'encoder'}.{{}}.self"
    encoder = loaded.model.get_encoder()
    if any(path.startswith(f"{name}.") for name, module in loaded.model.named_modules() if module is encoder):
        return "encoder.{}.self"
    return "decoder.{}.cross" if any(word in path for word in _CROSS) else "decoder.{}.self"


def of_sequence(loaded: Loaded, paths: Iterable[str]) -> list[str]:
    """Return the paths of what is shown: of a model that reads images too, without the encoder that sees them."""
    if loaded.processor is None:
        return list(paths)
    language = loaded.model.get_decoder()
    inside = next((f"{place}." for place, module in loaded.model.named_modules() if module is language), "")
    found = [path for path in paths if path.startswith(inside) and not any(word in path for word in _CROSS)]
    if not found:
        raise DataError("of this model nothing can be shown: its text and its images are not one sequence.")
    return found


def named(loaded: Loaded, tape: Recording) -> dict[str, str]:
    """Return the keys of a tape of one pass by the names of the attentions."""
    counts = dict.fromkeys(AXES, 0)
    found = {}
    for key in of_sequence(loaded, tape):
        kind = kind_of(loaded, key)
        found[kind.format(counts[kind])] = key
        counts[kind] += 1
    return found
