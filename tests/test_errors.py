"""The checks of options: texts and truth values are no numbers, and texts no truth values."""

import math

import pytest
import torch

import foci
from foci import errors
from foci.errors import ConfigError, ShapeError

HEADS = {"model_dim": 6, "num_heads": 2}
X = torch.randn(2, 3, 6)


@pytest.mark.parametrize("value", ["2", True, 0, -1, math.nan, math.inf, [2]])
def test_a_positive_number(value):
    errors.check_positive("A", size=2, factor=0.5, left_out=None)
    with pytest.raises(ConfigError, match="A: size is .*, expected a number above 0"):
        errors.check_positive("A", size=value)


@pytest.mark.parametrize("value", ["3", 3.0, True, 2, 0, -1])
def test_an_odd_number(value):
    errors.check_odd("A", width=1, other=7)
    with pytest.raises(ConfigError, match="A: width is .*, expected an odd number above 0"):
        errors.check_odd("A", width=value)


@pytest.mark.parametrize("window", ["12", 3, (1,), (1, 2, 3), ("1", "2"), (1.0, 2), (True, 2), (-1, 2), torch.ones(2)])
def test_a_window(window):
    for fine in (None, (1, 2), [0, 0], (None, 3)):
        errors.check_window("A", fine)
    for bounded in (False, True):
        with pytest.raises(
            ConfigError, match=r"A: window is .*, expected \(left, right\), two whole numbers of 0 or more"
        ):
            errors.check_window("A", window, bounded=bounded)
    with pytest.raises(ConfigError, match="two whole numbers"):
        errors.check_window("A", (None, 3), bounded=True)


def test_a_window_may_end_before_a_querys_own_position():
    errors.check_window("A", (3, -1), lowest=None)
    foci.attend(X, X, X, window=(3, -1))
    foci.MultiHeadAttention(6, 2, window=(3, -1))(X, X)
    with pytest.raises(ConfigError, match=r"two whole numbers, each None for no bound"):
        errors.check_window("A", (3.0, -1), lowest=None)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("multi_head", {**HEADS, "causal": "yes"}, "causal is 'yes', expected True or False"),
        ("multi_head", {**HEADS, "alibi": "no"}, "alibi is 'no', expected True or False"),
        ("multi_head", {**HEADS, "bias": "no"}, "bias is 'no', expected True or False"),
        ("multi_head", {**HEADS, "output_bias": 0}, "output_bias is 0, expected True or False"),
        ("multi_head", {**HEADS, "keep_weights": "no"}, "keep_weights is 'no', expected True or False"),
        ("multi_head", {**HEADS, "qk_norm": 1}, "qk_norm is 1, expected True or False"),
        ("multi_head", {**HEADS, "rotary": "yes"}, "rotary is 'yes', expected True, False or a foci.*Rotary"),
        ("multi_head", {**HEADS, "relative": 3}, "relative is a int, expected t5, shaw, transformer_xl, or a module"),
        ("multi_head", {**HEADS, "relative": torch.nn.Identity()}, "relative is a Identity, .*RelativeBias"),
        ("multi_head", {**HEADS, "window": "12"}, "window is '12', expected"),
        ("multi_head", {**HEADS, "window": 3}, "window is 3, expected"),
        ("multi_head", {**HEADS, "keep_weights": True, "normalize": "sparsemax"}, "keep_weights is True .*left out"),
        ("multi_head", {**HEADS, "dropout": True}, "dropout is True, expected a number"),
        ("sliding_window", {"query_dim": 6, "key_dim": 6, "window": "12"}, "window is '12', expected"),
        (
            "ntm",
            {"input_dim": 5, "num_slots": 7, "slot_dim": 3, "shift_width": "3"},
            "shift_width is '3', expected an odd",
        ),
        ("cbam", {"channels": 8, "kernel_size": "3"}, "kernel_size is '3', expected an odd"),
        ("dot", {"sharpening": True}, "sharpening is True, expected a number above 0"),
        ("dot", {"sharpening": math.inf}, "sharpening is inf, expected a number above 0"),
    ],
)
def test_options_of_mechanisms(name, options, message):
    with pytest.raises(ConfigError, match=message):
        foci.catalog.card(name).builder(**options)


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"window": 3}, ConfigError, "attend: window is 3, expected"),
        ({"window": (1.5, 2)}, ConfigError, "attend: window is"),
        ({"dropout": "0.1"}, ConfigError, "attend: dropout is '0.1', expected a number"),
        ({"dropout": math.nan}, ConfigError, "attend: dropout is nan, expected a number"),
        ({"causal": "yes"}, ConfigError, "attend: causal is 'yes', expected True or False"),
        ({"bias": torch.ones(2, 3, 3, dtype=torch.long)}, ShapeError, "bias has dtype torch.int64, expected floating"),
        ({"bias": torch.ones(2, 3, 3, dtype=torch.bool)}, ShapeError, "Pass a boolean mask as mask="),
    ],
)
def test_options_of_attend(options, kind, message):
    with pytest.raises(kind, match=message):
        foci.attend(X, X, X, **options)


@pytest.mark.parametrize("bias", [1.0, "x", torch.ones(2, 3, 3, dtype=torch.long)])
def test_a_bias_of_heads(bias):
    with pytest.raises(ShapeError, match="bias (is a|has dtype)"):
        foci.MultiHeadAttention(6, 2)(X, X, bias=bias)


@pytest.mark.parametrize("size", ["2", 2.0, -1, True])
def test_the_size_of_a_cache(size):
    with pytest.raises(ConfigError, match="empty_cache: batch_size is .*, expected a whole number from 0"):
        foci.MultiHeadAttention(6, 2).empty_cache(size)


def test_a_cache_of_another_dtype():
    attention = foci.MultiHeadAttention(6, 2, causal=True)
    cache = foci.MultiHeadAttention(6, 2).double().empty_cache(2)
    with pytest.raises(ShapeError, match=r"the cache has dtype torch.float64, but the new keys have torch.float32"):
        attention(X, X, state=cache)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert attention(X, X, state=attention.empty_cache(2)).output.isfinite().all()
