"""Score functions of queries and keys.

    dot         q · k                    scaled_dot  q · k / sqrt(D)
    general     qᵀ W k                   cosine      q · k / (|q| |k|)
    additive    vᵀ tanh(q + k)           concat      vᵀ tanh(W [q; k])

Every function takes ``query (…, L, D)`` and ``key (…, S, D)`` whose leading axes broadcast, and returns
``(…, L, S)``. Learned parameters are arguments; the modules in `foci.mechanisms.scores` own them.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from foci.checks import check_shape
from foci.errors import ShapeError
from foci.functional import kernels


def dot(query: Float[Tensor, "... L D"], key: Float[Tensor, "... S D"]) -> Float[Tensor, "... L S"]:
    """Return ``q · k`` (Luong 2015, section 3.1)."""
    _check_same_size("dot", query, key)
    return query @ key.mT


def scaled_dot(
    query: Float[Tensor, "... L D"], key: Float[Tensor, "... S D"], scale: float | None = None
) -> Float[Tensor, "... L S"]:
    """Return ``scale · q · k``, by default with ``scale = 1 / sqrt(D)`` (Vaswani 2017, eq. 1)."""
    _check_same_size("scaled_dot", query, key)
    return (query * (default_scale(query) if scale is None else scale)) @ key.mT


def general(
    query: Float[Tensor, "... L Dq"], key: Float[Tensor, "... S Dk"], weight: Float[Tensor, "Dq Dk"]
) -> Float[Tensor, "... L S"]:
    """Return ``qᵀ W k`` (Luong 2015, section 3.1)."""
    check_shape("general", "weight", weight, query.shape[-1], key.shape[-1])
    return query @ weight @ key.mT


def additive(
    query: Float[Tensor, "... L A"],
    key: Float[Tensor, "... S A"],
    vector: Float[Tensor, " A"],
    key_exp: Float[Tensor, "..."] | None = None,
) -> Float[Tensor, "... L S"]:
    """Return ``vᵀ tanh(q_i + k_j)``, query and key already projected to A (Bahdanau 2015, appendix A.1.2).

    Nothing of size L·S·A is built. ``key_exp`` is the result of `foci.functional.kernels.additive.prepare_key` for this
    key, for a decoder that attends to it many times.
    """
    _check_same_size("additive", query, key)
    check_shape("additive", "vector", vector, query.shape[-1])
    return kernels.additive.additive_scores(query, key, vector, key_exp)


def concat(
    query: Float[Tensor, "... L Dq"],
    key: Float[Tensor, "... S Dk"],
    weight: Float[Tensor, "A Dq_plus_Dk"],
    vector: Float[Tensor, " A"],
) -> Float[Tensor, "... L S"]:
    """Return ``vᵀ tanh(W [q_i; k_j])``: additive, since ``W [q; k] = W_q q + W_k k`` (Luong 2015, section 3.1)."""
    check_shape("concat", "weight", weight, "hidden", query.shape[-1] + key.shape[-1])
    for_query, for_key = weight.split([query.shape[-1], key.shape[-1]], dim=-1)
    return additive(query @ for_query.mT, key @ for_key.mT, vector)


def cosine(
    query: Float[Tensor, "... L D"], key: Float[Tensor, "... S D"], eps: float = 1e-8
) -> Float[Tensor, "... L S"]:
    """Return ``q · k / (|q| |k|)``; a vector of zeros scores 0, with a finite gradient (Graves 2014, eq. 6)."""
    _check_same_size("cosine", query, key)
    return unit(query, eps) @ unit(key, eps).mT


def unit(vectors: Float[Tensor, "... D"], eps: float = 1e-8) -> Float[Tensor, "... D"]:
    """Return each vector divided by its length; zeros stay zeros and keep a finite gradient."""
    # The floor is under the root, since the root's own gradient is infinite at 0. It is a maximum and not a sum, since
    # the optimizer of ONNX programs drops what it takes for + 0. Half precision is widened, since its squares underflow
    # and its gradient at 0, 1/eps, would overflow.
    eps = max(eps, 1e-4) if vectors.dtype == torch.float16 else eps
    wide = vectors.float() if vectors.dtype.itemsize < 4 else vectors
    squared = wide.square().sum(dim=-1, keepdim=True)
    return (wide * torch.rsqrt(squared.clamp_min(eps**2))).to(vectors.dtype)


def default_scale(query: Float[Tensor, "... D"]) -> float:
    """Return ``1 / sqrt(D)``."""
    return 1.0 / math.sqrt(max(query.shape[-1], 1))


def _check_same_size(owner: str, query: Tensor, key: Tensor) -> None:
    check_shape(owner, "query", query, "…", "query", "size")
    if key.shape[-1] != query.shape[-1]:
        raise ShapeError(
            f"{owner}: key has shape {tuple(key.shape)}, expected (…, key, {query.shape[-1]}) to fit the query "
            f"{tuple(query.shape)}. Project one of them, or use score 'general' for two sizes."
        )
