"""Relevance by the papers' equations, written as plain loops, beside foci's."""

import numpy as np
import pytest
import torch
from torch import nn

import foci
from foci.errors import ConfigError, ShapeError, UnknownNameError
from foci.metrics import relevance
from foci.metrics.attention import rollout
from foci.recording import record


def matmul(a, b):
    return [[sum(a[i][k] * b[k][j] for k in range(len(b))) for j in range(len(b[0]))] for i in range(len(a))]


def added(a, b):
    return [[x + y for x, y in zip(one, other)] for one, other in zip(a, b)]


def eye(n):
    return [[float(i == j) for j in range(n)] for i in range(n)]


def normalized(r):
    """Equations 8 and 9."""
    n = len(r)
    hat = [[r[i][j] - float(i == j) for j in range(n)] for i in range(n)]
    sums = [sum(row) for row in hat]
    return [[(hat[i][j] / sums[i] if sums[i] > 0 else 0.0) + float(i == j) for j in range(n)] for i in range(n)]


def mean_of_positive_products(weights, gradient):
    """Equation 5."""
    heads, rows, columns = weights.shape
    return [
        [
            sum(max(0.0, float(weights[h, i, j]) * float(gradient[h, i, j])) for h in range(heads)) / heads
            for j in range(columns)
        ]
        for i in range(rows)
    ]


def transposed(a):
    return [list(column) for column in zip(*a)]


class Attends(nn.Module):
    """Attention of H heads whose weights are kept with their gradient."""

    def __init__(self, dim=6, heads=2):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim) for _ in range(4))

    def forward(self, x, memory):
        q, k, v = (
            part(one).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part, one in ((self.q, x), (self.k, memory), (self.v, memory))
        )
        self.weights = (3 * q @ k.mT).softmax(-1)
        if self.weights.requires_grad:
            self.weights.retain_grad()
        return x + self.o((self.weights @ v).transpose(1, 2).flatten(2))


class TwoStreams(nn.Module):
    """An encoder of two layers, and a decoder of two that reads itself and the encoder; ``mutual``: each the other."""

    def __init__(self, mutual=False):
        super().__init__()
        self.mutual = mutual
        self.encoder = nn.ModuleList(Attends() for _ in range(2))
        self.own, self.cross, self.back = (nn.ModuleList(Attends() for _ in range(2)) for _ in range(3))

    def forward(self, source, target):
        for layer in self.encoder:
            source = layer(source, source)
        for own, cross, back in zip(self.own, self.cross, self.back):
            target = own(target, target)
            target, source = cross(target, source), back(source, target) if self.mutual else source
        return (target[..., 0] * 3).tanh().sum() + (source[..., 1].sum() if self.mutual else 0)


STREAMS = {
    "encoder.*": ("source", "source"),
    "own.*": ("target", "target"),
    "cross.*": ("target", "source"),
    "back.*": ("source", "target"),
}


def by_hand(tape, model, row):
    """The rules for two streams t and i, in the order of the calls; of each call the relevance between its streams."""
    t, i = 4, 3
    r = {("t", "t"): eye(t), ("i", "i"): eye(i), ("t", "i"): [[0.0] * i] * t, ("i", "t"): [[0.0] * t] * i}
    found = {}
    for path in tape.paths:
        s, q = {"source": "i", "target": "t"}[STREAMS[path[:-1] + "*"][0]], None
        q = {"source": "i", "target": "t"}[STREAMS[path[:-1] + "*"][1]]
        module = model.get_submodule(path)
        a = mean_of_positive_products(module.weights[row].detach(), module.weights.grad[row])
        if s == q:
            o = "t" if s == "i" else "i"
            r[s, s], r[s, o] = added(r[s, s], matmul(a, r[s, s])), added(r[s, o], matmul(a, r[s, o]))  # 6, 7
        else:
            more = matmul(transposed(normalized(r[s, s])), matmul(a, normalized(r[q, q])))  # 10
            own = matmul(a, r[q, s])  # 11
            r[s, q], r[s, s] = added(r[s, q], more), added(r[s, s], own)
        found[path] = r[s, q]
    return found


@pytest.mark.parametrize("mutual", [False, True])
def test_the_rules_of_two_streams(mutual):
    torch.manual_seed(0)
    model = TwoStreams(mutual)
    with record(model, gradients=True) as tape:
        score = model(torch.randn(2, 3, 6), torch.randn(2, 4, 6))
    score.backward()
    found = relevance.relevances(tape, "chefer", streams=STREAMS)
    assert list(found) == tape.paths
    for row in range(2):
        for path, expected in by_hand(tape, model, row).items():
            np.testing.assert_allclose(found[path][row].numpy(), expected, rtol=1e-4, atol=1e-6)
    last = found["cross.1"]
    assert last.shape == (2, 4, 3)
    assert float(last.max()) > 1e-3


def test_self_attention_of_a_library_model_and_a_subset_of_it():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(12, 3, 17, batch_first=True, dropout=0.0)
    model = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
    with record(model, gradients=True) as tape:
        score = model(torch.randn(2, 5, 12))[:, 0, 0].sum()
    score.backward()
    found = relevance.relevances(tape, "chefer")
    expected = torch.eye(5).expand(2, -1, -1)
    for path in tape.paths:
        one = (tape[path].dense().detach() * tape.gradient(path)).clamp_min(0).mean(1)
        expected = expected + one @ expected
        torch.testing.assert_close(found[path], expected)
        torch.testing.assert_close(relevance.relevances(tape, "gradient")[path], one)
    only = relevance.relevances(tape, "chefer", streams={"layers.1*": ("x", "x")})
    assert list(only) == ["layers.1.self_attn"]
    rolled = relevance.relevances(tape, "rollout")
    layers = np.stack([tape[path].dense().detach()[1].numpy() for path in tape.paths])
    for reached, of_foci in zip(rollout(layers), rolled.values()):
        np.testing.assert_allclose(of_foci[1].numpy(), reached, rtol=1e-5)


@pytest.mark.parametrize("by_head", [False, True])
def test_norms_are_those_of_the_vectors_that_are_added(by_head):
    torch.manual_seed(0)
    model = Attends()
    x, memory = torch.randn(2, 5, 6), torch.randn(2, 7, 6)
    with record(model, values=True) as tape:
        model(x, memory)
    found = relevance.norms(tape["."].dense(), tape.projected("."), by_head=by_head)
    values = model.v(memory).unflatten(-1, (2, 3))
    for b in range(2):
        for i in range(5):
            for j in range(7):
                parts = [
                    model.weights[b, h, i, j] * (model.o.weight[:, 3 * h : 3 * h + 3] @ values[b, j, h]) for h in (0, 1)
                ]
                of = found[b, :, i, j] if by_head else found[b, i, j]
                expected = torch.stack([p.norm() for p in parts]) if by_head else sum(parts).norm()
                torch.testing.assert_close(of, expected.detach(), rtol=1e-4, atol=1e-6)
    if not by_head:
        assert torch.equal(relevance.relevances(tape, "norms", streams={"*": ("x", "y")})["."], found)


def test_calls_of_one_module_are_layers_of_their_own():
    torch.manual_seed(0)
    attention = Attends()

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.shared = attention

        def forward(self, x):
            return self.shared(first := self.shared(x, x), first)

    with record(model := Twice(), gradients=True, values=True) as tape:
        score = model(torch.randn(1, 4, 6)).sum()
    score.backward()
    for method in relevance.METHODS:
        assert list(relevance.relevances(tape, method)) == ["shared", "shared#1"]


def test_what_lacks_is_named():
    torch.manual_seed(0)
    model = TwoStreams()
    source, target = torch.randn(1, 3, 6), torch.randn(1, 4, 6)
    with record(model) as tape:
        model(source, target)
    with pytest.raises(ConfigError, match=r"encoder\.0, .*have no gradient.*gradients=True"):
        relevance.relevances(tape, "chefer", streams=STREAMS)
    with pytest.raises(ConfigError, match="values=True"):
        relevance.relevances(tape, "norms", streams=STREAMS)
    with pytest.raises(ShapeError, match=r"\(4, 3\).*streams="):
        relevance.relevances(tape, "rollout")
    with pytest.raises(ConfigError, match="rollout is for"):
        relevance.relevances(tape, "rollout", streams=STREAMS)
    with pytest.raises(UnknownNameError, match="chefer"):
        relevance.relevances(tape, "cheffer")
    with pytest.raises(ConfigError, match=r"no pattern.*encoder\.0"):
        relevance.relevances(tape, "rollout", streams={"x": ("a", "b")})
    with pytest.raises(ConfigError, match="at most two"):
        relevance.chefer([torch.ones(2, 2)] * 3, [("a", "a"), ("b", "b"), ("c", "c")])
    with pytest.raises(ShapeError, match="attention 1 has 3 positions of 'a', expected 2"):
        relevance.chefer([torch.ones(2, 2), torch.ones(3, 3)], [("a", "a")] * 2)
    with pytest.warns(UserWarning, match="record"), record(nn.Linear(2, 2)) as empty:
        pass
    with pytest.raises(ConfigError, match="empty"):
        relevance.relevances(empty)
    assert foci.metrics.relevance is relevance


def test_value_zeroing_is_that_of_layers_whose_values_are_taken_out_by_hand():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(6, 2, 9, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    x = torch.randn(2, 4, 6)
    found = relevance.value_zeroing(model, lambda: model(x))

    def run(one, given, zeroed):
        query, key, value = torch.nn.functional.linear(
            given, one.self_attn.in_proj_weight, one.self_attn.in_proj_bias
        ).chunk(3, -1)
        if zeroed is not None:
            value = value.clone()
            value[:, zeroed] = 0.0
        parts = []
        for head in range(2):
            some = slice(3 * head, 3 * head + 3)
            weights = (query[..., some] @ key[..., some].mT / 3**0.5).softmax(-1)
            parts.append(weights @ value[..., some])
        given = one.norm1(given + one.self_attn.out_proj(torch.cat(parts, -1)))
        return one.norm2(given + one.linear2(one.linear1(given).relu()))

    given = x
    with torch.no_grad():
        for number, one in enumerate(model.layers):
            whole = run(one, given, None)
            for b in range(2):
                for i in range(4):
                    turned = [
                        1 - torch.cosine_similarity(whole[b, i], run(one, given, j)[b, i], dim=0) for j in range(4)
                    ]
                    expected = torch.stack(turned) / sum(turned)
                    torch.testing.assert_close(
                        found[f"layers.{number}.self_attn"][b, i].float(), expected, rtol=1e-3, atol=1e-4
                    )
            given = whole


def test_value_zeroing_of_shared_layers_and_of_some_paths():
    torch.manual_seed(0)

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.shared = Attends()

        def forward(self, x):
            first = self.shared(x, x)
            return self.shared(first, first)

    model, x = Twice().eval(), torch.randn(1, 3, 6)
    found = relevance.value_zeroing(model, lambda: model(x))
    again = relevance.value_zeroing(model, lambda: model.shared(model.shared(x, x), model.shared(x, x)), ["shared"])
    assert list(found) == ["shared", "shared#1"]
    assert list(again) == ["shared"]
    torch.testing.assert_close(found["shared"], again["shared"])
    assert not torch.allclose(found["shared"], found["shared#1"])
    below = model.shared(x, x).detach()  # of the second call alone values are taken out
    alone = relevance.value_zeroing(model, lambda: model.shared(below, below))
    torch.testing.assert_close(found["shared#1"], alone["shared"])
    with pytest.raises(ConfigError, match="in training"):
        relevance.value_zeroing(model.train(), lambda: model(x))
