"""A focus and a stage of one's own with heads: the same as a mask, a bias, and a line after the call."""

import pytest
import torch
from torch import nn

import foci
from foci import masks
from foci.errors import ConfigError, ShapeError

torch.manual_seed(5)
B, L, S, D = 3, 5, 7, 6
QUERY, KEY = torch.randn(B, L, D), torch.randn(B, S, D)
MASK = masks.keys(masks.lengths([4, 0, 7], S))


def every_other(query, key):
    return (torch.arange(key.shape[1]) % 2 == 0).view(1, 1, -1)


class Near(nn.Module):
    """Prefers keys that are near to the query, of numbers before any projection."""

    def __init__(self):
        super().__init__()
        self.strength = nn.Parameter(torch.tensor(0.7))

    def forward(self, query, key):
        return -self.strength * (query.unsqueeze(-2) - key.unsqueeze(-3)).abs().mean(dim=-1)


class Gate(nn.Module):
    """A gate with a bias, which rows that read nothing must not get."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(D, D)

    def forward(self, query, attended):
        return attended._replace(output=attended.output * torch.sigmoid(self.layer(query)) + 1)


OPTIONS = {
    "plain": {},
    "causal": {"causal": True},
    "window": {"window": (1, 2)},
    "grouped": {"num_key_heads": 1},
    "rotary": {"rotary": True, "head_dim": 4},
    "alibi": {"alibi": True},
    "shaw": {"relative": "shaw"},
    "sparsemax": {"normalize": "sparsemax"},
    "sink": {"sink": "learned"},
    "own score": {"score": lambda query, key: query @ key.mT},
}


@pytest.mark.parametrize("mask", [None, MASK], ids=["all", "masked"])
@pytest.mark.parametrize("focus", [every_other, Near()], ids=["mask", "bias"])
@pytest.mark.parametrize("name", OPTIONS)
def test_a_focus_and_a_stage(name, focus, mask):
    own = foci.MultiHeadAttention(D, 2, focus=focus, after=Gate(), **OPTIONS[name])
    plain = foci.MultiHeadAttention(D, 2, **OPTIONS[name])
    plain.load_state_dict(own.state_dict(), strict=False)
    found, limits = focus(QUERY, KEY), {}
    if found.dtype == torch.bool:
        limits["mask"] = found if mask is None else mask & found
    else:
        limits |= {"bias": found, "mask": mask}
    read = plain(QUERY, KEY, **limits)
    dead = read.weights.dense().sum(dim=(1, 3)).unsqueeze(-1) == 0
    assert dead.any() == (mask is not None)
    expected = own.after(QUERY, read).output.masked_fill(dead, 0.0)
    result = own(QUERY, KEY, mask=mask)
    torch.testing.assert_close(result.weights.dense(), read.weights.dense())
    torch.testing.assert_close(result.output, expected)
    result.output.sum().backward()
    assert all(one.grad is not None for one in (*own.after.parameters(), *getattr(focus, "parameters", list)()))


def test_they_are_given_with_heads_too():
    bias, mask = torch.randn(B, 2, L, S), (torch.rand(B, 2, L, S) < 0.7) | (torch.arange(S) == 0)
    own = foci.MultiHeadAttention(D, 2, focus=Near())
    plain = foci.MultiHeadAttention(D, 2)
    plain.load_state_dict(own.state_dict(), strict=False)
    expected = plain(QUERY, KEY, mask=mask, bias=bias + own.focus(QUERY, KEY).unsqueeze(1)).output
    torch.testing.assert_close(own(QUERY, KEY, mask=mask, bias=bias).output, expected)
    headed = foci.MultiHeadAttention(D, 2, focus=lambda query, key: bias)
    headed.load_state_dict(plain.state_dict())
    torch.testing.assert_close(headed(QUERY, KEY).output, plain(QUERY, KEY, bias=bias).output)


def test_a_source_is_prepared_once():
    own = foci.MultiHeadAttention(D, 2, focus=Near(), after=Gate())
    memory = own.prepare(KEY, mask=MASK)
    steps = [own.read(QUERY[:, step : step + 1], memory).output for step in range(L)]
    torch.testing.assert_close(torch.cat(steps, dim=1), own(QUERY, KEY, mask=MASK).output)


@pytest.mark.slow
def test_they_are_compiled_and_exported():
    own = foci.MultiHeadAttention(D, 2, focus=Near(), after=Gate())
    expected = own(QUERY, KEY, mask=MASK).output
    compiled = torch.compile(own, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(QUERY, KEY, mask=MASK).output, expected)
    program = torch.export.export(own, (QUERY, KEY), {"mask": MASK}).module()
    torch.testing.assert_close(program(QUERY, KEY, mask=MASK).output, expected)


def test_a_stage_is_no_attention_of_its_own():
    model = nn.ModuleDict(
        {"heads": foci.MultiHeadAttention(D, 2, after=Gate()), "one": foci.Attention(D, D, after=Gate())}
    )
    with foci.record(model) as tape:
        for attention in model.values():
            attention(QUERY, KEY)
    assert list(tape) == ["heads", "one"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"focus": 3}, "focus is a int, expected a name, or .*protocol foci.mechanisms.parts.Focus"),
        ({"focus": "local_m"}, "focus is 'local_m', expected a function .* Set causal=True or window="),
        ({"focus": lambda query: None}, "focus <lambda>: it takes .*protocol foci.mechanisms.parts.Focus"),
        ({"after": nn.Identity()}, "after Identity: it takes .*protocol foci.mechanisms.parts.Stage"),
        ({"after": Gate}, "after is the class Gate, expected an object"),
    ],
)
def test_what_is_no_part_is_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        foci.MultiHeadAttention(D, 2, **options)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"focus": lambda query, key: None}, ConfigError, "focus <lambda>: it returned a NoneType"),
        ({"focus": lambda query, key: torch.ones(L, S)}, ShapeError, r"focus <lambda>: bias has shape \(5, 7\)"),
        (
            {"focus": lambda query, key: torch.ones(1, 1, S).int()},
            ShapeError,
            "focus <lambda>: mask has dtype torch.int32",
        ),
        (
            {"after": lambda query, attended: attended.output},
            ConfigError,
            "MultiHeadAttention: after: it returned a Tensor",
        ),
    ],
)
def test_what_returns_something_else_is_refused_at_the_first_call(options, error, message):
    with pytest.raises(error, match=message):
        foci.MultiHeadAttention(D, 2, **options)(QUERY, KEY)


def test_a_focus_with_a_cache_is_refused():
    own = foci.MultiHeadAttention(D, 2, causal=True, focus=every_other)
    with pytest.raises(ConfigError, match="focus is every_other with a cache, .*as mask=… or bias=… of the call"):
        own(KEY, KEY, state=own.empty_cache(B))
