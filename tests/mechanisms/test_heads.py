"""Multi-head and multi-step attention: the papers as loops, torch as a peer, caches, rotary and ALiBi."""

import math

import pytest
import torch
from torch import nn

import foci
from foci import masks
from foci.errors import ConfigError
from foci.functional import attend as attend_module
from foci.functional import positions
from foci.functional.attend import attend_dots
from foci.mechanisms.heads import MultiHeadAttention, MultiStepAttention
from foci.weights.sources import Dense

B, L, S, D, H = 2, 5, 7, 6, 3


def multi_head_by_loops(module, query, key, value, mask=None):
    """Vaswani 2017, section 3.2.2, one head and one query at a time."""
    size = D // module.num_heads
    q, k, v = module.query_layer(query), module.key_layer(key), module.value_layer(value)
    group = module.num_heads // module.num_key_heads
    heads, weights = [], torch.zeros(query.shape[0], module.num_heads, query.shape[1], key.shape[1])
    for h in range(module.num_heads):
        mine = slice(h * size, (h + 1) * size)
        shared = slice((h // group) * size, (h // group + 1) * size)
        head = torch.zeros(*query.shape[:2], size)
        for b in range(query.shape[0]):
            for i in range(query.shape[1]):
                cells = [j for j in range(key.shape[1]) if mask is None or mask[b, i, j]]
                scores = torch.stack([q[b, i, mine] @ k[b, j, shared] / math.sqrt(size) for j in cells])
                weights[b, h, i, cells] = torch.softmax(scores, dim=0)
                head[b, i] = sum(weights[b, h, i, j] * v[b, j, shared] for j in cells)
        heads.append(head)
    return module.output_layer(torch.cat(heads, dim=-1)), weights


@pytest.mark.parametrize("key_heads", [3, 1])
def test_multi_head_by_loops(key_heads):
    module = MultiHeadAttention(D, H, key_dim=11, value_dim=13, num_key_heads=key_heads)
    query, key, value = torch.randn(B, L, D), torch.randn(B, S, 11), torch.randn(B, S, 13)
    mask = torch.rand(B, L, S) > 0.3
    output, weights = multi_head_by_loops(module, query, key, value, mask)
    read = module(query, key, value, mask)
    torch.testing.assert_close(read.output, output, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(read.weights.dense(), weights, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("sizes", [{}, {"kdim": 11, "vdim": 13}, {"bias": False}])
def test_from_torch_gives_equal_outputs_weights_and_gradients(sizes):
    theirs = nn.MultiheadAttention(D, H, batch_first=True, **sizes)
    nn.init.normal_(theirs.out_proj.weight)
    if theirs.in_proj_bias is not None:
        nn.init.normal_(theirs.in_proj_bias)
        nn.init.normal_(theirs.out_proj.bias)
    ours = MultiHeadAttention.from_torch(theirs)
    query = torch.randn(B, L, D)
    key, value = torch.randn(B, S, sizes.get("kdim", D)), torch.randn(B, S, sizes.get("vdim", D))
    expected, weights = theirs(query, key, value, average_attn_weights=False)
    read = ours(query, key, value)
    torch.testing.assert_close(read.output, expected)
    torch.testing.assert_close(read.weights.dense(), weights)
    expected.square().sum().backward()
    read.output.square().sum().backward()
    torch.testing.assert_close(ours.output_layer.weight.grad, theirs.out_proj.weight.grad, atol=1e-4, rtol=1e-4)


def test_from_torch_refuses_what_it_cannot_keep():
    with pytest.raises(ConfigError, match="add_bias_kv"):
        MultiHeadAttention.from_torch(nn.MultiheadAttention(D, H, add_bias_kv=True))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"rotary": True},
        {"alibi": True},
        {"num_key_heads": 1},
        {"window": (2, None)},
        {"normalize": "entmax15", "num_key_heads": 1},
    ],
)
@pytest.mark.parametrize("chunks", [[1] * L, [2, 3]])
def test_decoding_with_a_cache_equals_reading_at_once(options, chunks):
    module = MultiHeadAttention(D, H, causal=True, **options).eval()
    x = torch.randn(B, L, D)
    valid = masks.lengths([L, 3], L)
    whole = module(x, x, mask=masks.keys(valid))
    state, outputs, start = module.empty_cache(B), [], 0
    for size in chunks:
        new = x[:, start : start + size]
        start += size
        step = module(new, new, mask=masks.keys(valid[:, :start]), state=state)
        state = step.state
        outputs.append(step.output)
    torch.testing.assert_close(torch.cat(outputs, dim=1), whole.output, atol=1e-6, rtol=1e-5)
    assert state.key.shape == (B, module.num_key_heads, L, D // H)
    assert whole.state is None


@pytest.mark.parametrize("chunks", [(4, 3), (1,) * 7])
@pytest.mark.parametrize("options", [{}, {"alibi": True}, {"normalize": "sparsemax"}, {"num_key_heads": 1}])
def test_a_cache_with_left_padding_equals_each_row_alone(options, chunks):
    """With a cache the mask covers more positions than the new ones, which are the last."""
    size, padding = sum(chunks), (0, 2, 5)
    module = MultiHeadAttention(D, H, causal=True, **options).double()
    x = torch.randn(len(padding), size, D, dtype=torch.float64)
    valid = torch.arange(size) >= torch.tensor(padding).unsqueeze(1)
    padded = x.masked_fill(~valid.unsqueeze(-1), torch.nan)
    state, outputs, start = module.empty_cache(len(padding)), [], 0
    for length in chunks:
        end = start + length
        output, _, state = module(padded[:, start:end], padded[:, start:end], None, masks.keys(valid[:, :end]), state)
        outputs.append(output)
        start = end
    for row, begin in enumerate(padding):
        alone = module(x[row : row + 1, begin:], x[row : row + 1, begin:]).output
        torch.testing.assert_close(torch.cat(outputs, dim=1)[row : row + 1, begin:], alone)


def test_what_the_padding_of_new_positions_holds_has_no_effect():
    """The mask's last columns are the new positions: a NaN there is cleared where they, not the first ones, say so."""
    lengths, chunks = (7, 4), (3, 4)
    module = MultiHeadAttention(D, H, causal=True).double()
    x = torch.randn(len(lengths), sum(chunks), D, dtype=torch.float64)
    valid = torch.arange(sum(chunks)) < torch.tensor(lengths).unsqueeze(1)
    padded = x.masked_fill(~valid.unsqueeze(-1), torch.nan)
    state = module(padded[:, :3], padded[:, :3], None, masks.keys(valid[:, :3]), module.empty_cache(2)).state
    output = module(padded[:, 3:], padded[:, 3:], None, masks.keys(valid), state).output
    for row, length in enumerate(lengths):
        alone = module(x[row : row + 1, :length], x[row : row + 1, :length]).output[:, 3:]
        torch.testing.assert_close(output[row : row + 1, : length - 3], alone)


def test_beams_are_reordered_by_one_tree_map():
    module = MultiHeadAttention(D, H, causal=True)
    x = torch.randn(B, L, D)
    state = module(x, x, state=module.empty_cache(B)).state
    order, new = torch.tensor([1, 1, 0]), torch.randn(3, 1, D)
    moved = torch.utils._pytree.tree_map(lambda t: t[order], state)
    step = module(new, new, state=moved).output
    whole = module(torch.cat([x[order], new], dim=1), torch.cat([x[order], new], dim=1)).output[:, -1:]
    torch.testing.assert_close(step, whole)


def test_a_query_that_may_read_nothing_gets_zero_not_the_output_bias():
    module = MultiHeadAttention(D, H, causal=True)
    nn.init.ones_(module.output_layer.bias)
    x = torch.randn(B, L, D)
    left_padded = masks.keys(~masks.lengths([2, 0], L))
    read = module(x, x, mask=left_padded)
    assert (read.output[0, :2] == 0).all()
    assert (read.output[0, 2:] != 0).any()
    assert (module(x, x[:, :2]).output[:, : L - 2] == 0).all(), "causal, with more queries than keys"


def test_rotary_scores_depend_on_distance_only():
    query, key = torch.randn(1, 1, 8, dtype=torch.float64), torch.randn(1, 1, 8, dtype=torch.float64)

    def score(i, j):
        return (positions.rotary(query, start=i) * positions.rotary(key, start=j)).sum()

    torch.testing.assert_close(score(9, 4), score(105, 100))
    assert not torch.allclose(score(9, 4), score(9, 5))
    angle = 3 / 10000 ** (2 / 8)
    x, y = query[0, 0, 2], query[0, 0, 3]
    turned = positions.rotary(query, start=3)[0, 0]
    torch.testing.assert_close(turned[2], x * math.cos(angle) - y * math.sin(angle))
    torch.testing.assert_close(turned[3], x * math.sin(angle) + y * math.cos(angle))
    with pytest.raises(ConfigError, match="7 features, expected an even"):
        positions.rotary(torch.randn(2, 3, 7))
    with pytest.raises(ConfigError, match="expected an even number for rotary"):
        MultiHeadAttention(9, 3, rotary=True)


def test_sinusoid_by_the_paper():
    table = positions.sinusoid(11, 7)
    for p in range(11):
        for i in range(7):
            angle = p / 10000 ** ((i - i % 2) / 7)
            assert abs(float(table[p, i]) - (math.cos(angle) if i % 2 else math.sin(angle))) < 1e-6
    torch.testing.assert_close(positions.sinusoid(3, 7, start=8), table[8:])


def test_alibi_by_the_paper():
    assert positions.alibi_slopes(8).tolist() == [2.0**-n for n in range(1, 9)]
    torch.testing.assert_close(positions.alibi_slopes(16)[::2], torch.tensor([2 ** -(n / 2) for n in range(1, 17, 2)]))
    assert positions.alibi_slopes(6).tolist() == [2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8, 2.0**-1, 2.0**-3]
    bias = positions.alibi(2, 3, 5)
    slopes = positions.alibi_slopes(2)
    for h in range(2):
        for i in range(3):
            for j in range(5):
                assert bias[0, h, i, j] == -slopes[h] * abs(i + 2 - j)
    module = MultiHeadAttention(D, H, alibi=True, causal=True)
    x = torch.randn(B, L, D)
    plain = MultiHeadAttention(D, H, causal=True)
    plain.load_state_dict(module.state_dict())
    logits = plain(x, x).weights.dense().log() + positions.alibi(H, L, L)
    torch.testing.assert_close(module(x, x).weights.dense(), torch.softmax(logits, dim=-1))


@pytest.fixture
def double_by_default():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def test_alibi_has_the_dtype_it_is_asked_for_whatever_the_default(double_by_default):
    assert positions.alibi_slopes(3).dtype == torch.float32
    assert positions.alibi(3, 5, 7).dtype == torch.float32
    exact = -positions.alibi_slopes(3, dtype=torch.float64).view(1, 3, 1, 1) * torch.arange(2000.0, -1.0, -1.0)
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        assert positions.alibi_slopes(3, dtype=dtype).dtype == dtype
        bias = positions.alibi(3, 1, 2001, dtype=dtype)
        assert bias.dtype == dtype
        assert torch.equal(bias, exact.to(dtype)), "rounded once"


@pytest.mark.parametrize("options", [{}, {"normalize": "sparsemax"}, {"score": "cosine"}, {"num_key_heads": 1}])
@pytest.mark.parametrize("keep_weights", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_alibi_in_half_precision(dtype, keep_weights, options):
    keep_weights = keep_weights and "normalize" not in options  # a sparsemax keeps them anyway
    module = MultiHeadAttention(D, H, alibi=True, causal=True, keep_weights=keep_weights, **options)
    x = torch.randn(B, L, D)
    expected = module(x, x)
    for train in (False, True):
        half = module.to(dtype).train(train)(x.to(dtype), x.to(dtype))
        assert half.output.dtype == half.weights.dense().dtype == dtype
        torch.testing.assert_close(half.output.float(), expected.output, atol=0.05, rtol=0.05)
        torch.testing.assert_close(half.weights.dense().float(), expected.weights.dense(), atol=0.02, rtol=0.05)
    with torch.autocast("cpu", dtype=dtype):
        cast = module.float()(x, x)
        weights = cast.weights.dense()
    torch.testing.assert_close(cast.output.float(), expected.output, atol=0.05, rtol=0.05)
    torch.testing.assert_close(weights.float(), expected.weights.dense(), atol=0.02, rtol=0.05)


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("keep_weights", [False, True])
def test_alibi_under_another_default_dtype(keep_weights, train, double_by_default):
    module = MultiHeadAttention(D, H, alibi=True, keep_weights=keep_weights).float().train(train)
    read = module(*(torch.randn(B, L, D, dtype=torch.float32),) * 2)
    assert read.output.dtype == read.weights.dense().dtype == torch.float32
    read.output.sum().backward()
    assert module.query_layer.weight.grad.dtype == torch.float32


@pytest.mark.parametrize("window", [None, (None, 0), (2, 1), (3, None)])
@pytest.mark.parametrize(("queries", "keys"), [(L, L), (3, S), (1, S)])
def test_alibi_by_distance_equals_a_dense_bias(window, queries, keys, monkeypatch):
    for name in ("_SHORT", "_SHORT_ALONE", "_BY_DISTANCE"):
        monkeypatch.setattr(attend_module, name, 0)  # as for long sequences
    query = torch.randn(B, 4, queries, D, dtype=torch.float64, requires_grad=True)
    key, value = torch.randn(B, 2, keys, D).double(), torch.randn(B, 2, keys, 5).double()
    slopes = positions.alibi_slopes(4).double()
    fast = attend_dots(query, key, value, scale=0.3, slopes=slopes, window=window)
    dense = positions.alibi_bias(slopes, queries, keys)
    slow = attend_dots(query, key, value, scale=0.3, bias=dense, window=window)
    torch.testing.assert_close(fast.output, slow.output)
    torch.testing.assert_close(fast.weights.dense(), slow.weights.dense())
    torch.testing.assert_close(fast.weights.heads(2).dense(), slow.weights.dense()[:, 2])
    grad = torch.randn_like(fast.output)
    torch.testing.assert_close(
        torch.autograd.grad(fast.output, query, grad)[0], torch.autograd.grad(slow.output, query, grad)[0]
    )


def test_multi_step_by_loops():
    """Gehring 2017, eqs. 1-2."""
    module = MultiStepAttention(5, D).double()
    h, g = torch.randn(B, L, 5, dtype=torch.float64), torch.randn(B, L, D, dtype=torch.float64)
    z, e = torch.randn(B, S, D, dtype=torch.float64), torch.randn(B, S, D, dtype=torch.float64)
    mask = masks.keys(masks.lengths([S, 3], S))
    read = module(h, z, e, mask, target=g)
    scaled = MultiStepAttention(5, D, scale_by_length=True).double()
    scaled.load_state_dict(module.state_dict())
    for b, length in enumerate((S, 3)):
        for i in range(L):
            d = module.layer.weight @ h[b, i] + module.layer.bias + g[b, i]
            a = torch.softmax(torch.stack([d @ z[b, j] for j in range(length)]), dim=0)
            c = sum(a[j] * (z[b, j] + e[b, j]) for j in range(length))
            torch.testing.assert_close(read.output[b, i], c)
            torch.testing.assert_close(read.weights.dense()[b, i, :length], a)
            rescaled = scaled(h, z, e, mask, target=g).output[b, i]
            torch.testing.assert_close(rescaled, c * length * math.sqrt(1 / length))


def test_fused_and_plain_paths_agree():
    query, key, value = torch.randn(B, H, L, D), torch.randn(B, H, S, D), torch.randn(B, H, S, 11)
    mask = torch.rand(B, L, S) > 0.3
    bias = torch.randn(1, H, L, S)
    for options in ({}, {"causal": True}, {"window": (1, 1)}, {"bias": bias}, {"bias": bias, "causal": True}):
        for used in (None, mask):
            fused = foci.attend(query, key, value, used, **options)
            plain = foci.attend(query, key, value, used, score=foci.functional.scores.scaled_dot, **options)
            torch.testing.assert_close(fused.output, plain.output)
            torch.testing.assert_close(fused.weights.dense(), plain.weights.dense())


def test_dropout_drops_in_training_only_and_leaves_the_handle_alone():
    module = MultiHeadAttention(D, H, dropout=0.5)
    x = torch.randn(B, L, D)
    assert not torch.equal(module(x, x).output, module(x, x).output)
    torch.testing.assert_close(module(x, x).weights.dense(), module.eval()(x, x).weights.dense())
    assert torch.equal(module(x, x).output, module(x, x).output)


def test_autocast_mixes_dtypes():
    module = MultiHeadAttention(D, H)
    x = torch.randn(B, L, D)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        read = module(x, x.bfloat16())
    assert read.output.dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"model_dim": 7, "num_heads": 2}, "model_dim is 7 and num_heads is 2"),
        ({"model_dim": 6, "num_heads": 3, "num_key_heads": 2}, "num_key_heads is 2, expected a divisor"),
    ],
)
def test_sizes_that_do_not_divide(arguments, words):
    with pytest.raises(ConfigError, match=words):
        MultiHeadAttention(**arguments)


@pytest.mark.parametrize("options", [{}, {"causal": True}, {"num_key_heads": 2}, {"alibi": True, "window": (2, 1)}])
def test_kept_weights_change_nothing_but_when_they_are_computed(options):
    torch.manual_seed(2)
    kept = MultiHeadAttention(12, 4, keep_weights=True, **options)
    asked = MultiHeadAttention(12, 4, **options)
    asked.load_state_dict(kept.state_dict())
    x = torch.randn(2, 7, 12)
    mask = masks.keys(masks.lengths([0, 5], 7))
    for given in (None, mask):
        one, other = kept(x, x, None, given), asked(x, x, None, given)
        torch.testing.assert_close(one.output, other.output)
        torch.testing.assert_close(one.weights.dense(), other.weights.dense())
        assert isinstance(one.weights.source, Dense)
