"""Traces of models in the format of Hugging Face: on this machine, with their own tokenizers, and `foci.record`.

Example:
    >>> import foci.huggingface
    >>> traces = foci.huggingface.read("gpt2", ["The cat sat on"], {"generate": 20})  # doctest: +SKIP

Nothing is downloaded, and no code from a model's folder runs.
"""

from typing import TYPE_CHECKING

from foci.lazy import attach

if TYPE_CHECKING:
    from foci.huggingface.options import ReadOptions
    from foci.huggingface.probing import subjects
    from foci.huggingface.reading import read

__all__ = ["ReadOptions", "read", "subjects"]

_HOMES = {
    "ReadOptions": "foci.huggingface.options",
    "read": "foci.huggingface.reading",
    "subjects": "foci.huggingface.probing",
}
__getattr__, __dir__ = attach(__name__, _HOMES)
