"""Every row of the attend family and every variant by its definition, query by query, from the module's parameters.

Nothing of foci is called but the module's linear layers: no shared normalizer, mask helper or fused path.
"""

import math

import entmax
import torch
from cases import option
from torch import Tensor, nn

NORMALIZERS = {
    "softmax": lambda scores: scores.exp() / scores.exp().sum(),
    "sigmoid": lambda scores: scores.sigmoid() / scores.sigmoid().sum(),
    "sparsemax": lambda scores: entmax.sparsemax(scores, dim=-1),
    "entmax15": lambda scores: entmax.entmax15(scores, dim=-1),
    "hard": lambda scores: nn.functional.one_hot(scores.argmax(), len(scores)).to(scores.dtype),
}
NORMALIZERS["sample"] = NORMALIZERS["gumbel"] = NORMALIZERS["hard"]  # without chance in eval()


def by_definition(
    case: str, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The output and the weights of the case in ``eval()``; a mask of four axes has one for each head."""
    shape = (query.shape[0], query.shape[1], key.shape[1])
    if mask is not None and mask.dim() == 4:
        shape = (shape[0], mask.shape[1], *shape[1:])
    readable = torch.ones(shape, dtype=torch.bool) if mask is None else mask.expand(shape)
    row = case.partition("/")[0]
    if row == "multi_head":
        return _multi_head(case, module, query, key, value, readable)
    if row == "multi_step":
        scores = module.layer(query) @ key.mT
        weights = torch.stack([_rows(case, scores[b], readable[b]) for b in range(shape[0])])
        cells = readable.sum(dim=-1, keepdim=True) if option(case, "scale_by_length") else torch.ones(1)
        return weights @ (key + value) * cells.to(key.dtype).sqrt(), weights
    weights = torch.stack([_one_source(case, module, query[b], key[b], readable[b]) for b in range(shape[0])])
    return weights @ value, weights


def _one_source(case: str, module: nn.Module, query: Tensor, key: Tensor, readable: Tensor) -> Tensor:
    """The weights ``(L, S)`` of `foci.Attention`, one query after the other."""
    size, focus = key.shape[0], option(case, "focus")
    found, previous = [], key.new_zeros(size)
    for t in range(query.shape[0]):
        cells, gaussian = readable[t].clone(), torch.ones(size, dtype=key.dtype)
        places = torch.arange(size)
        own = size - query.shape[0] + t
        if focus in ("causal", "sliding_window"):
            left, right = (size, 0) if focus == "causal" else option(case, "window")
            cells &= (places >= own - left) & (places <= own + right)
        elif focus == "median_window" and previous.sum() > 0:
            left, right = option(case, "window")
            median = next(j for j in range(size) if previous[: j + 1].sum() >= previous.sum() / 2)
            cells &= (places >= median - left) & (places <= median + right)
        elif focus in ("local_m", "local_p"):
            radius, center = option(case, "radius"), float(t)
            if focus == "local_p":
                # The source reaches to the last cell that any of its queries may read.
                length = max((j + 1 for j in range(size) if readable[:, j].any()), default=0)
                logit = module.focus.vector @ torch.tanh(module.focus.layer(query[t]))
                center = length * torch.sigmoid(logit)
                gaussian = torch.exp(-((places - center) ** 2) / (2 * (radius / 2) ** 2))
            cells &= (places >= center - radius) & (places <= center + radius)
        scores = _scores(module.score, option(case, "score"), query[t], key, previous)
        scores = scores * option(case, "sharpening", 1.0)
        previous = _rows(case, scores.unsqueeze(0), cells.unsqueeze(0))[0] * gaussian
        found.append(previous)
    return torch.stack(found) if found else key.new_zeros(0, size)


def _scores(score: nn.Module, name: str, query: Tensor, key: Tensor, previous: Tensor) -> Tensor:
    """The score of every key ``(S, Dk)`` with one query ``(Dq,)``."""
    if name == "dot":
        return key @ query
    if name == "scaled_dot":
        return key @ query / math.sqrt(len(query))
    if name == "general":
        return torch.stack([query @ score.weight @ one for one in key])
    if name == "cosine":
        return torch.stack([score.log_strength.exp() * query @ one / (query.norm() * one.norm()) for one in key])
    if name == "location":
        return score.weight[: len(key)] @ query
    if name == "concat":
        return torch.stack([score.vector @ torch.tanh(score.weight @ torch.cat([query, one])) for one in key])
    hidden = score.query_layer(query) + score.key_layer(key)
    if name == "location_aware":
        width = score.filters.kernel_size[0]
        padded = nn.functional.pad(previous, (width // 2, width // 2))
        features = torch.stack([score.filters.weight[:, 0] @ padded[j : j + width] for j in range(len(key))])
        hidden = hidden + score.filter_layer(features)
    return torch.tanh(hidden) @ score.vector


def _multi_head(
    case: str, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, readable: Tensor
) -> tuple[Tensor, Tensor]:
    heads, key_heads = module.num_heads, module.num_key_heads
    size = module.model_dim // heads
    queries, keys = query.shape[1], key.shape[1]
    distance = (torch.arange(queries).unsqueeze(1) + keys - queries) - torch.arange(keys)  # own place − cell
    readable = (readable if readable.dim() == 4 else readable.unsqueeze(1)).expand(-1, heads, -1, -1)
    if option(case, "causal"):
        readable = readable & (distance >= 0)
    if option(case, "window"):
        left, right = option(case, "window")
        readable = readable & (distance <= left) & (distance >= -right)
    outputs, weights = [], []
    for head in range(heads):
        group = head // (heads // key_heads)
        q = module.query_layer(query)[..., head * size : (head + 1) * size]
        k = module.key_layer(key)[..., group * size : (group + 1) * size]
        v = module.value_layer(value)[..., group * size : (group + 1) * size]
        if option(case, "qk_norm"):
            q, k = (x / (x.square().mean(dim=-1, keepdim=True) + 1e-6).sqrt() for x in (q, k))
        if option(case, "rotary"):
            q, k = _turned(q, keys - queries), _turned(k, 0)
        if option(case, "score") == "cosine":
            scores = q @ k.mT / (q.norm(dim=-1).unsqueeze(-1) * k.norm(dim=-1).unsqueeze(-2))
        else:
            scores = q @ k.mT / math.sqrt(size)
        if option(case, "alibi"):
            scores = scores - 2.0 ** (-8 * (head + 1) / heads) * distance.abs()
        weights.append(torch.stack([_rows(case, s, may) for s, may in zip(scores, readable[:, head])]))
        outputs.append(weights[-1] @ v)
    output = module.output_layer(torch.cat(outputs, dim=-1))
    nothing = ~readable.any(dim=-1).any(dim=1)  # in none of the heads
    return output.masked_fill(nothing.unsqueeze(-1), 0.0), torch.stack(weights, dim=1)


def _turned(vectors: Tensor, start: int) -> Tensor:
    """RoFormer, eq. 15: each pair of features rotated by an angle that grows with the position."""
    turned = torch.empty_like(vectors)
    for place in range(vectors.shape[1]):
        for pair in range(0, vectors.shape[2], 2):
            angle = (start + place) / 10000 ** (pair / vectors.shape[2])
            even, odd = vectors[:, place, pair], vectors[:, place, pair + 1]
            turned[:, place, pair] = even * math.cos(angle) - odd * math.sin(angle)
            turned[:, place, pair + 1] = even * math.sin(angle) + odd * math.cos(angle)
    return turned


def _rows(case: str, scores: Tensor, readable: Tensor) -> Tensor:
    """Each row of scores ``(L, S)`` normalized over the cells it may read; 0 elsewhere."""
    normalize = NORMALIZERS[option(case, "normalize", "softmax")]
    weights = torch.zeros_like(scores)
    for row, cells in enumerate(readable):
        if cells.any():
            weights[row, cells] = normalize(scores[row, cells])
    return weights
