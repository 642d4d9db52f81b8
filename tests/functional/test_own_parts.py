"""A score and a normalizer of one's own in `foci.attend`: what is checked, and when."""

import gc
from dataclasses import dataclass
from functools import partial

import pytest
import torch
from torch import nn
from torch.func import vmap

import foci
from foci import masks
from foci.errors import ConfigError, ShapeError
from foci.functional import own_parts

Q, K = torch.randn(3, 2, 5, 7), torch.randn(3, 2, 11, 7)
MASK = masks.keys(masks.lengths([4, 0, 11], 11))


def shares(scores, mask):
    return (scores if mask is None else scores.masked_fill(~mask, -torch.inf)).softmax(dim=-1)


def dots(query, key, scale=7**-0.5):
    return query @ key.mT * scale


@dataclass
class Shares:
    """Neither hashable nor a function."""

    __slots__ = ("power",)
    power: float

    def __call__(self, scores, mask):
        return shares(scores * self.power, mask)


@pytest.mark.parametrize(
    "normalize",
    [shares, partial(shares), Shares(1.0), Shares(1.0).__call__],
    ids=["function", "partial", "object", "method"],
)
@pytest.mark.parametrize("mask", [None, MASK])
def test_any_callable_is_used_with_heads_and_masks(normalize, mask):
    for _ in range(2):
        read = foci.attend(Q, K, K, mask, score=dots, normalize=normalize)
        torch.testing.assert_close(read.output, foci.attend(Q, K, K, mask).output)
        torch.testing.assert_close(read.weights.dense(), foci.attend(Q, K, K, mask).weights.dense())


def test_a_bias_and_a_window_reach_the_normalizer_of_ones_own():
    bias = torch.randn(1, 1, 5, 11).masked_fill(torch.rand(1, 1, 5, 11) > 0.8, -torch.inf)
    options = {"bias": bias, "causal": True}
    read = foci.attend(Q, K, K, MASK, normalize=shares, **options)
    torch.testing.assert_close(read.output, foci.attend(Q, K, K, MASK, **options).output)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"score": 3}, ConfigError, r"score is a int, expected a name, or a function or module called as score\(query"),
        ({"normalize": nn.Softmax(-1)}, ConfigError, r"normalizer Softmax: it takes \(input"),
        (
            {"score": lambda q, k: q @ k.mT[..., :1]},
            ShapeError,
            r"scores of shape \(3, 2, 5, 1\), expected \(3, 2, 5, 11\)",
        ),
        ({"normalize": lambda s, m: s.softmax(-1)}, ConfigError, "gives weight to masked positions"),
        ({"normalize": lambda s, m: s[0]}, ShapeError, r"weights of shape \(2, 5, 11\), expected \(3, 2, 5, 11\)"),
    ],
)
def test_what_is_wrong_is_an_error_every_time_until_it_is_right(options, error, message):
    for _ in range(2):
        with pytest.raises(error, match=message):
            foci.attend(Q, K, K, MASK, **options)


def test_a_leak_is_found_at_the_first_mask_that_closes_something():
    leaky = lambda scores, mask: scores.softmax(dim=-1)  # noqa: E731
    foci.attend(Q, K, K, normalize=leaky)
    foci.attend(Q, K, K, masks.keys(torch.ones(3, 11, dtype=torch.bool)), normalize=leaky)
    with pytest.raises(ConfigError, match="gives weight to masked positions"):
        foci.attend(Q, K, K, MASK, normalize=leaky)


def test_what_was_checked_is_forgotten_with_the_object():
    own = lambda scores, mask: shares(scores, mask)  # noqa: E731
    foci.attend(Q, K, K, MASK, normalize=own)
    key = (id(own), None, "mask")
    assert key in own_parts._CHECKED
    del own
    gc.collect()
    assert key not in own_parts._CHECKED


def test_a_method_is_checked_once(monkeypatch):
    class Own:
        def method(self, scores, mask):
            return shares(scores, mask)

    own, checked = Own(), []
    monkeypatch.setattr(own_parts, "check_returned", lambda *arguments: checked.append(arguments[0]))
    for _ in range(3):
        foci.attend(Q, K, K, MASK, normalize=own.method)
    assert checked == ["normalizer"]


def test_one_object_in_two_parts_is_checked_in_both():
    same = lambda first, second: first  # noqa: E731
    foci.attend(Q, K, K, normalize=same)
    with pytest.raises(ShapeError, match=r"score <lambda>: it returned scores of shape \(3, 2, 5, 7\)"):
        foci.attend(Q, K, K, score=same)


@pytest.mark.parametrize("option", ["score", "normalize"])
def test_none_is_no_part(option):
    kind = {"score": "score", "normalize": "normalizer"}[option]
    with pytest.raises(ConfigError, match=f"{kind} is a NoneType, expected a name, or a function or module"):
        foci.attend(Q, K, K, **{option: None})


def test_nan_is_called_nan():
    with pytest.raises(ConfigError, match="normalizer <lambda>: it gives NaN as weights, expected finite numbers"):
        foci.attend(Q, K, K, MASK, normalize=lambda scores, mask: scores / 0 * 0)


def test_in_transforms_and_on_no_device_nothing_is_looked_at():
    want = foci.attend(Q, K, K, MASK).output
    found = vmap(lambda q, k, m: foci.attend(q, k, k, m, normalize=lambda s, m: shares(s, m)).output)(
        Q, K, MASK.unsqueeze(1)
    )
    torch.testing.assert_close(found, want)
    meta = foci.attend(Q.to("meta"), K.to("meta"), K.to("meta"), MASK.to("meta"), normalize=lambda s, m: shares(s, m))
    assert meta.output.shape == want.shape


def near(query, key):
    return -(query.unsqueeze(-2) - key.unsqueeze(-3)).abs().mean(dim=-1)


def every_other(query, key):
    return (torch.arange(key.shape[-2]) % 2 == 0).expand(*(1,) * (key.dim() - 1), -1)


def shifted(query, attended):
    return attended._replace(output=attended.output + 1)


@pytest.mark.parametrize(
    "further", [{}, {"causal": True}, {"window": (2, 3)}, {"score": dots}, {"normalize": "entmax15"}]
)
@pytest.mark.parametrize("heads", [slice(None), 0], ids=["heads", "one head"])
def test_a_focus_and_a_stage_are_a_mask_a_bias_and_a_line_after(heads, further):
    query, key = Q[:, heads], K[:, heads]
    mask = MASK.unsqueeze(1) if query.dim() == 4 else MASK
    closed = foci.attend(query, key, key, mask & every_other(query, key), **further)
    found = foci.attend(query, key, key, mask, focus=every_other, after=shifted, **further)
    torch.testing.assert_close(found.weights.dense(), closed.weights.dense())
    dead = found.weights.dense().sum(dim=-1, keepdim=True) == 0
    assert dead.any()
    torch.testing.assert_close(found.output, (closed.output + 1).masked_fill(dead, 0.0))
    bias = torch.randn(1, *(1,) * (query.dim() - 3), 5, 11)
    expected = foci.attend(query, key, key, mask, bias=bias + near(query, key), **further)
    found = foci.attend(query, key, key, mask, bias=bias, focus=near, **further)
    torch.testing.assert_close(found.output, expected.output)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"focus": "causal"}, "focus is a str, expected a name, or .*protocol foci.mechanisms.parts.Focus"),
        ({"focus": lambda query: query}, "focus <lambda>: it takes .*protocol foci.mechanisms.parts.Focus"),
        ({"focus": lambda query, key: None}, "focus <lambda>: it returned a NoneType"),
        ({"after": nn.Identity()}, "after Identity: it takes .*protocol foci.mechanisms.parts.Stage"),
        ({"after": lambda query, attended: attended.output}, "attend: after: it returned a Tensor"),
    ],
)
def test_what_is_no_focus_or_stage_is_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        foci.attend(Q, K, K, **options)
