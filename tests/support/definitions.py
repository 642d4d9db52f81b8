"""Every row of the attend family and every variant by its definition, query by query, from the module's parameters.

Nothing of foci is called but the module's linear layers: no shared normalizer, mask helper or fused path.
"""

import math

import entmax
import torch
from cases import option
from torch import Tensor, nn

from foci.functional.rotary_options import Rotary

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
    if row == "conditional":
        return conditional(module, query, key, value, readable)
    if row == "deformable":
        return deformable(module, query, value, readable, [(1, key.shape[1])])
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
    size = option(case, "head_dim") or module.model_dim // heads
    queries, keys = query.shape[1], key.shape[1]
    distance = (torch.arange(queries).unsqueeze(1) + keys - queries) - torch.arange(keys)  # own place − cell
    readable = (readable if readable.dim() == 4 else readable.unsqueeze(1)).expand(-1, heads, -1, -1)
    if option(case, "causal"):
        readable = readable & (distance >= 0)
    if option(case, "window"):
        left, right = option(case, "window")
        readable = readable & (distance <= left) & (distance >= -right)
    scale = option(case, "scale", 1 / math.sqrt(size))
    outputs, weights = [], []
    for head in range(heads):
        group = head // (heads // key_heads)
        q = module.query_layer(query)[..., head * size : (head + 1) * size]
        k = module.key_layer(key)[..., group * size : (group + 1) * size]
        v = module.value_layer(value)[..., group * size : (group + 1) * size]
        q, k = _normed(case, q, module.query_norm), _normed(case, k, module.key_norm)
        if option(case, "rotary"):
            how = option(case, "rotary")
            q, k = _turned(q, keys - queries, how), _turned(k, 0, how)
        if option(case, "score") == "cosine":
            scores = q @ k.mT / (q.norm(dim=-1).unsqueeze(-1) * k.norm(dim=-1).unsqueeze(-2))
        else:
            scores = q @ k.mT * scale
        if option(case, "score_cap"):
            scores = option(case, "score_cap") * torch.tanh(scores / option(case, "score_cap"))
        if option(case, "alibi"):
            scores = scores - 2.0 ** (-8 * (head + 1) / heads) * distance.abs()
        if option(case, "relative"):
            scores = scores + _relative_bias(case, module.relative, head, q, k, distance) * scale
        sink = None if option(case, "sink") is None else module.sink[head]
        weights.append(torch.stack([_rows(case, s, may, sink) for s, may in zip(scores, readable[:, head])]))
        read = weights[-1] @ v
        if option(case, "relative") == "shaw":  # Shaw, eq. 3
            read = read + torch.einsum("bls,lsd->bld", weights[-1], _by_distance(module.relative.value_table, distance))
        if option(case, "gate") == "elementwise":
            read = read * torch.sigmoid(module.gate_layer(query)[..., head * size : (head + 1) * size])
        elif option(case, "gate") == "headwise":
            read = read * torch.sigmoid(module.gate_layer(query)[..., head : head + 1])
        outputs.append(read)
    output = module.output_layer(torch.cat(outputs, dim=-1))
    nothing = ~readable.any(dim=-1).any(dim=1)  # in none of the heads
    return output.masked_fill(nothing.unsqueeze(-1), 0.0), torch.stack(weights, dim=1)


def _normed(case: str, vectors: Tensor, norm: nn.Module | None) -> Tensor:
    kind = option(case, "qk_norm")
    if not kind:
        return vectors
    if kind == "layer":
        vectors = vectors - vectors.mean(dim=-1, keepdim=True)
    normed = vectors / (vectors.square().mean(dim=-1, keepdim=True) + option(case, "norm_epsilon", 1e-6)).sqrt()
    if kind is True:
        return normed
    return normed * norm.weight + (norm.bias if kind == "layer" else 0.0)


def _turned(vectors: Tensor, start: int, how: Rotary | bool) -> Tensor:
    """RoFormer, eq. 15: each pair of features rotated by an angle that grows with the position."""
    how = Rotary() if how is True else how
    turned, dim = vectors.clone(), how.rotated_dim or vectors.shape[2]
    magnitude = 0.1 * math.log(how.factor) + 1 if how.scaling == "yarn" else 1.0
    for place in range(vectors.shape[1]):
        for pair in range(dim // 2):
            angle = (start + place) * _rate(how, pair, dim)
            one, other = (pair, pair + dim // 2) if how.layout == "half" else (2 * pair, 2 * pair + 1)
            x, y = vectors[:, place, one], vectors[:, place, other]
            turned[:, place, one] = magnitude * (x * math.cos(angle) - y * math.sin(angle))
            turned[:, place, other] = magnitude * (x * math.sin(angle) + y * math.cos(angle))
    return turned


def _rate(how: Rotary, pair: int, dim: int) -> float:
    """The angle per position of a pair; for YaRN and Llama 3 its share of what is kept goes down with its turns."""
    if how.scaling == "ntk":
        return (how.base * how.factor ** (dim / (dim - 2))) ** (-2 * pair / dim)
    rate = how.base ** (-2 * pair / dim)
    if how.scaling == "none":
        return rate
    kept = 0.0
    if how.scaling == "llama3":
        kept = (how.original_length * rate / (2 * math.pi) - 1) / (4 - 1)
    elif how.scaling == "yarn":
        first, last = (
            dim * math.log(how.original_length / (2 * math.pi * turns)) / (2 * math.log(how.base))
            for turns in (how.beta_fast, 1)
        )
        first, last = max(math.floor(first), 0), min(math.ceil(last), dim - 1)
        kept = 1 - (pair - first) / (last - first)
    kept = min(max(kept, 0.0), 1.0)
    return kept * rate + (1 - kept) * rate / how.factor


def _by_distance(table: Tensor, distance: Tensor) -> Tensor:
    """Shaw's vector ``(L, S, K)`` of each distance, clipped to what the table has."""
    reach = len(table) // 2
    rows = [[table[reach + max(-reach, min(reach, -int(one)))] for one in row] for row in distance]
    return torch.stack([torch.stack(row) for row in rows])


def _relative_bias(case: str, relative: nn.Module, head: int, q: Tensor, k: Tensor, distance: Tensor) -> Tensor:
    """What is added to ``q · k`` of one head."""
    kind = option(case, "relative")
    if kind == "shaw":
        return torch.einsum("bld,lsd->bls", q, _by_distance(relative.key_table, distance))
    if kind == "t5":  # distances below a quarter, or half, of the 32 buckets have one each
        far = 0 if option(case, "causal") else 16
        buckets = [[max(int(one), 0) if far == 0 or one >= 0 else far - int(one) for one in row] for row in distance]
        assert max(map(max, buckets)) < far + 8 + (8 if far == 0 else 0)
        return relative.table[torch.tensor(buckets), head] * math.sqrt(q.shape[-1])
    size, model_dim = q.shape[-1], relative.layer.in_features
    place = torch.empty(*distance.shape, size, dtype=q.dtype)
    for i, row in enumerate(distance.tolist()):
        for j, steps in enumerate(row):
            angles = [steps / 10000 ** ((d - d % 2) / model_dim) for d in range(model_dim)]
            waves = torch.tensor([math.cos(a) if d % 2 else math.sin(a) for d, a in enumerate(angles)], dtype=q.dtype)
            place[i, j] = relative.layer.weight[head * size : (head + 1) * size] @ waves
    return torch.einsum("bld,lsd->bls", q + relative.position_bias[head], place) + (
        k @ relative.content_bias[head]
    ).unsqueeze(1)


def _rows(case: str, scores: Tensor, readable: Tensor, sink: Tensor | None = None) -> Tensor:
    """Each row of scores ``(L, S)`` normalized over the cells it may read, and over the sink; 0 elsewhere."""
    normalize = NORMALIZERS[option(case, "normalize", "softmax")]
    weights = torch.zeros_like(scores)
    for row, cells in enumerate(readable):
        if cells.any():
            read = scores[row, cells]
            weights[row, cells] = normalize(read if sink is None else torch.cat([read, sink.view(1)]))[: len(read)]
    return weights


def conditional(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    readable: Tensor,
    query_position: Tensor | None = None,
    key_position: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Meng 2021, section 3.3: the two products of each pair, added."""
    size, rows, (batch, keys, _) = module.model_dim // module.num_heads, query.shape[1], key.shape
    if key_position is None:
        rates = [10000 ** (-2 * (d // 2) / module.position_dim) for d in range(module.position_dim)]
        codes = [[(math.cos if d % 2 else math.sin)(j * rate) for d, rate in enumerate(rates)] for j in range(keys)]
        key_position = torch.tensor(codes, dtype=key.dtype).view(1, keys, module.position_dim).expand(batch, -1, -1)
    first, _, last = module.scale_layer
    weights = torch.zeros(batch, module.num_heads, rows, keys, dtype=key.dtype)
    output = torch.zeros_like(query)
    for b in range(batch):
        for i in range(rows):
            place = last(first(query[b, i]).relu())
            place = module.query_position_layer(place if query_position is None else place * query_position[b, i])
            content, read = module.query_layer(query[b, i]), []
            for h in range(module.num_heads):
                own = slice(h * size, (h + 1) * size)
                scores = [
                    content[own] @ module.key_layer(key[b, j])[own]
                    + place[own] @ module.key_position_layer(key_position[b, j])[own]
                    for j in range(keys)
                ]
                scores = torch.stack(scores) / math.sqrt(2 * size)
                weights[b, h, i] = _rows("conditional", scores.unsqueeze(0), readable[b, i].unsqueeze(0))[0]
                read.append(weights[b, h, i] @ module.value_layer(value[b])[:, own])
            if readable[b, i].any():
                output[b, i] = module.output_layer(torch.cat(read))
    return output, weights


def deformable(
    module: nn.Module,
    query: Tensor,
    value: Tensor,
    readable: Tensor,
    levels: list[tuple[int, int]],
    reference: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Zhu 2021, eqs. 1-3: every cell weighs what the two triangles around a point give it."""
    heads, points = module.num_heads, module.num_points
    reference = module.reference_layer(query).sigmoid() if reference is None else reference
    values = module.value_layer(value).unflatten(-1, (heads, -1))
    weights = torch.zeros(len(query), heads, query.shape[1], value.shape[1], dtype=query.dtype)
    output = torch.zeros_like(query)
    for b in range(len(query)):
        for i in range(query.shape[1]):
            if not readable[b, i].any():
                continue
            offsets = module.offset_layer(query[b, i]).view(heads, len(levels), points, 2)
            of_points = [NORMALIZERS["softmax"](row) for row in module.weight_layer(query[b, i]).view(heads, -1)]
            for m in range(heads):
                cell = 0
                for level, (height, width) in enumerate(levels):
                    cells = [(cell + r * width + c, r, c) for r in range(height) for c in range(width)]
                    open_cells = [(r, c) for number, r, c in cells if readable[b, :, number].any()]
                    wide = max((c + 1 for _, c in open_cells), default=0)
                    high = max((r + 1 for r, _ in open_cells), default=0)
                    for k in range(points):
                        right, down = offsets[m, level, k]
                        if len(reference[b, i]) == 4:
                            right = right / points * reference[b, i, 2] * wide / 2
                            down = down / points * reference[b, i, 3] * high / 2
                        x = reference[b, i, 0] * wide + right
                        y = reference[b, i, 1] * high + down
                        for number, r, c in cells:
                            in_row, in_column = 1 - abs(x - c - 0.5), 1 - abs(y - r - 0.5)
                            if in_row > 0 and in_column > 0 and readable[b, i, number]:
                                weights[b, m, i, number] += of_points[m][level * points + k] * in_row * in_column
                    cell += height * width
            read = [weights[b, m, i] @ values[b, :, m] for m in range(heads)]
            output[b, i] = module.output_layer(torch.cat(read))
    return output, weights
