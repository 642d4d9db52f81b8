"""One step of a Transformer's decoder for N hypotheses, all layers in one call, for float32 on a CPU.

    x ← x + W_o attend(norm(x))   over the past, and over the source if there is one
    x ← x + W_2 f(W_1 norm(x)),   logits = W norm(x)

A step of a few rows has little to compute: called one by one, torch's operations and their views cost more than
the numbers, and a product of 16 rows reaches half of what the processor can do. ``decoder_step.cpp`` multiplies by
weights packed for this. `foci.layers.incremental.compiled_steps` prepares a decoder for it; the plain form is
`foci.layers.transformer.DecoderLayer.step`. The activations, softmax and norms are computed in float32, with relative
errors of about 1e-7.
"""

from __future__ import annotations

import ctypes

import torch
from jaxtyping import Float
from torch import Tensor

from foci.functional.kernels.kernel import ADDRESS, REAL, SIZE, Kernel
from foci.functional.kernels.kernel import run as call
from foci.functional.kernels.self_check import are_near, numbers_for

ACTIVATIONS = {"relu": 1, "relu2": 2, "gelu": 3}
"""The activations of the feed-forward network that the kernel has, by their numbers there."""


class Product(ctypes.Structure):
    """A linear layer; see `packed`."""

    _fields_ = [("weight", ADDRESS), ("bias", ADDRESS), ("inputs", SIZE), ("outputs", SIZE)]


class Norm(ctypes.Structure):
    """LayerNorm where it is ``centered``, else RMSNorm; gain and shift may be missing."""

    _fields_ = [("gain", ADDRESS), ("shift", ADDRESS), ("centered", SIZE), ("epsilon", REAL)]


class Layer(ctypes.Structure):
    """A layer, its past ``(B, H, room, K)`` and, if there is one, its source ``(B, H, S, K)``."""

    _fields_ = [
        *((name, Norm) for name in ("self_norm", "source_norm", "inner_norm")),
        *((name, Product) for name in ("project", "join", "query", "join_source", "inner", "outer")),
        *(("keys", ADDRESS), ("values", ADDRESS), ("room", SIZE)),
        *(("source_keys", ADDRESS), ("source_values", ADDRESS)),
    ]


class Step(ctypes.Structure):
    """What all layers share. Addresses are those of contiguous tensors; 0 where there is nothing.

    ``turn (K / 2, 2)`` has cosine and sine of the rotation of each pair of features, ``path (N, past_length)`` and
    ``valid (B, S)`` which positions may be read, ``positions (N, past_length)`` and ``slopes (H,)`` are those of ALiBi.
    A negative ``unit_epsilon`` leaves query and key as they are, a ``cap`` of 0 the logits.
    """

    _fields_ = [
        *((name, SIZE) for name in ("layers", "sources", "hypotheses", "heads", "size", "past_length")),
        *((name, SIZE) for name in ("source_length", "norm_first", "activation")),
        *((name, ADDRESS) for name in ("turn", "path", "positions", "slopes", "valid")),
        ("position", SIZE),
        ("unit_epsilon", REAL),
        ("cap", REAL),
        ("norm", Norm),
        ("has_norm", SIZE),
        ("output", Product),
        ("threads", SIZE),
    ]


def is_active() -> bool:
    """Return whether the kernel can be used."""
    return _KERNEL.library is not None


def packed(
    weight: Float[Tensor, "O I"], bias: Float[Tensor, " O"] | None, library: ctypes.CDLL | None = None
) -> tuple[Product, tuple[Tensor | None, ...]]:
    """Return a linear layer as the kernel reads it, and the tensors that must live as long as it does."""
    library = library or _library()
    weight = weight.detach().contiguous()
    bias = None if bias is None else bias.detach().contiguous()
    outputs, inputs = weight.shape
    width = library.foci_decoder_step_width()
    panels = weight.new_empty(-(-outputs // width) * width * inputs)
    call(library.foci_decoder_step_pack, weight, outputs, inputs, panels)
    address = None if bias is None else bias.data_ptr()
    return Product(panels.data_ptr(), address, inputs, outputs), (panels, bias)


def run(
    step: Step,
    layers: ctypes.Array[Layer],
    x: Float[Tensor, "N D"],
    hidden: int,
    library: ctypes.CDLL | None = None,
) -> tuple[Float[Tensor, "N V"], Float[Tensor, "N D"]]:
    """Take a step.

    Args:
        step: the sizes and what the layers share.
        layers: the layers, with the past in which the new keys and values are written.
        x: the embedded tokens, which are overwritten.
        hidden: inner size of the feed-forward networks.
        library: that of the kernel, default: loaded and checked.

    Returns:
        The logits, and the last layer's queries of the source; without a source these are undefined.
    """
    library = library or _library()
    scratch = x.new_empty(library.foci_decoder_step_scratch(ctypes.byref(step), hidden))
    queries, logits = torch.empty_like(x), x.new_empty(x.shape[0], step.output.outputs)
    addresses = ctypes.addressof(step), ctypes.addressof(layers)
    call(library.foci_decoder_step_run, *addresses, x, scratch, hidden, queries, logits)
    return logits, queries


def _library() -> ctypes.CDLL:
    library = _KERNEL.library
    if library is None:
        raise RuntimeError("decoder_step: the kernel is not active. Ask is_active first.")
    return library


_FUNCTIONS = {
    "width": (SIZE, []),
    "scratch": (SIZE, [ADDRESS, SIZE]),
    "pack": (None, [ADDRESS, SIZE, SIZE, ADDRESS]),
    "run": (None, [*[ADDRESS] * 4, SIZE, ADDRESS, ADDRESS]),
}


def _self_check(library: ctypes.CDLL) -> bool:
    """Compare a step of one layer with 19 features with the equations."""
    size, hidden, past = 19, 23, 3
    shapes = [(3 * size, size), (size, size), (hidden, size), (size, hidden), (70, size)]
    x, keys, values, *weights = numbers_for((1, size), (past + 1, size), (past + 1, size), *shapes)
    projected = torch.nn.functional.layer_norm(x, (size,)) @ weights[0].mT
    query, keys[past], values[past] = projected.chunk(3, dim=1)
    found = x + torch.softmax(query @ keys.mT / size**0.5, dim=1) @ values @ weights[1].mT
    inner = torch.nn.functional.gelu(torch.nn.functional.layer_norm(found, (size,)) @ weights[2].mT)
    wanted = (found + inner @ weights[3].mT) @ weights[4].mT

    products = [packed(weight.float(), None, library) for weight in weights]
    project, join, inner_layer, outer, output = (product for product, _ in products)
    norm, (stored_keys, stored_values) = Norm(None, None, 1, 1e-5), (keys.float(), values.float())
    stored_keys[past] = stored_values[past] = 0.0
    nothing = Product(None, None, 0, 0)
    stored = (stored_keys.data_ptr(), stored_values.data_ptr(), past + 1, None, None)
    layers = (Layer * 1)(Layer(norm, norm, norm, project, join, nothing, nothing, inner_layer, outer, *stored))
    one = {"layers": 1, "sources": 1, "hypotheses": 1, "heads": 1, "norm_first": 1, "threads": 1}
    step = Step(
        **one, size=size, past_length=past + 1, activation=ACTIVATIONS["gelu"], unit_epsilon=-1.0, output=output
    )
    logits, _ = run(step, layers, x.float(), hidden, library)
    return are_near([logits], [wanted], 1e-4)


_KERNEL = Kernel("decoder_step", _FUNCTIONS, _self_check)
