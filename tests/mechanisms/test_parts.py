"""Parts of attention of one's own: what fulfils a protocol is used, on every path, and all else is refused."""

import copy
import pickle

import pytest
import torch
from torch import nn

import foci
from foci import masks
from foci.errors import ConfigError, ShapeError
from foci.functional.own_parts import name_of
from foci.mechanisms import scores
from foci.mechanisms.attention import Attention
from foci.mechanisms.focus import FOCUSES, FocusModule, SlidingWindow
from foci.mechanisms.normalizers import NORMALIZERS
from foci.mechanisms.scores import SCORES, Additive, Dot, LocationAware, ScoreModule
from foci.outputs import AttentionOutput

torch.manual_seed(5)
QUERY, KEY = torch.randn(2, 3, 5), torch.randn(2, 11, 5)
MASK = masks.keys(masks.lengths([7, 0], 11))


def distance(query, key):
    return -torch.cdist(query, key)


def relu_share(scores, mask):
    """The share of the positive scores."""
    positive = scores.relu() + 1e-3
    positive = positive if mask is None else positive.masked_fill(~mask, 0.0)
    return positive / positive.sum(dim=-1, keepdim=True)


def plain_softmax(scores, mask):
    return (scores if mask is None else scores.masked_fill(~mask, -torch.inf)).softmax(dim=-1)


def every_other(query, key):
    return (torch.arange(key.shape[1]) % 2 == 0).view(1, 1, -1)


def recency(query, key):
    return 0.3 * torch.arange(key.shape[1], dtype=query.dtype).view(1, 1, -1)


class Weighted(nn.Module):
    """A score with a parameter: the distance, features weighted."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, 5))

    def forward(self, query, key):
        return -((query.unsqueeze(-2) - key.unsqueeze(-3)).square() * self.weight).sum(dim=-1)


class DistanceModule(ScoreModule):
    """By the base class; a dot product unless `compare` is called."""

    def compare(self, query, key, prepared=None):
        return distance(query, key)


class Sink(nn.Module):
    """A softmax with a learned score of reading nothing."""

    def __init__(self):
        super().__init__()
        self.score = nn.Parameter(torch.zeros(()))

    def forward(self, scores, mask):
        closed = scores if mask is None else scores.masked_fill(~mask, -torch.inf)
        nothing = self.score.expand(*scores.shape[:-1], 1)
        return torch.cat([closed, nothing], dim=-1).softmax(dim=-1)[..., :-1]


class Gate(nn.Module):
    """A gate on the output, by the query."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 5)

    def forward(self, query, attended):
        return attended._replace(output=attended.output * torch.sigmoid(self.layer(query)))


class First(FocusModule):
    """Reads the first position alone."""

    def read(self, reading):
        value = reading.memory.value
        weights = torch.zeros(*reading.query.shape[:2], value.shape[1])
        weights[..., 0] = 1.0
        if reading.mask is not None:
            weights = weights * reading.mask
        return AttentionOutput(weights @ value, foci.Weights.from_tensor(weights))


class Near(nn.Module):
    """A focus with a parameter: nearer keys are preferred."""

    def __init__(self):
        super().__init__()
        self.strength = nn.Parameter(torch.tensor(0.2))

    def forward(self, query, key):
        return -self.strength * torch.cdist(query, key)


def by_hand(query, key, value, mask, score, normalize, bias=None):
    """Score, normalize, read, row by row."""
    output = torch.zeros(*query.shape[:2], value.shape[-1])
    for b in range(len(query)):
        readable = torch.arange(key.shape[1]) if mask is None else mask[b, 0].nonzero().squeeze(-1)
        if len(readable):
            scores = score(query[b : b + 1], key[b : b + 1, readable])
            scores = scores if bias is None else scores + bias[:, :, readable]
            output[b] = (normalize(scores, None) @ value[b : b + 1, readable])[0]
    return output


@pytest.mark.parametrize("mask", [None, MASK], ids=["all", "masked"])
@pytest.mark.parametrize("score", [distance, DistanceModule(), Weighted(), nn.Bilinear], ids=name_of)
@pytest.mark.parametrize("normalize", ["softmax", relu_share, Sink(), plain_softmax], ids=name_of)
def test_score_and_normalizer_of_ones_own_are_used(score, normalize, mask):
    if score is nn.Bilinear:  # a function around a module, and sizes that differ
        bilinear = nn.Bilinear(5, 5, 1)
        score = lambda q, k: bilinear(*torch.broadcast_tensors(q.unsqueeze(2), k.unsqueeze(1))).squeeze(-1)  # noqa: E731
    share = plain_softmax if normalize == "softmax" else normalize
    with torch.no_grad():
        want = by_hand(QUERY, KEY, KEY, mask, score, share)
        read = Attention(5, 5, score=score, normalize=normalize)(QUERY, KEY, mask=mask)
        torch.testing.assert_close(read.output, want)
        torch.testing.assert_close(read.weights.dense() @ KEY, want)
        torch.testing.assert_close(foci.attend(QUERY, KEY, KEY, mask, score=score, normalize=normalize).output, want)


@pytest.mark.parametrize(
    ("own", "named"),
    [
        ({"score": lambda q, k: q @ k.mT / 2, "normalize": Sink()}, {"score": "dot"}),
        ({"score": lambda q, k: q @ k.mT}, {"score": "dot"}),
        ({"normalize": plain_softmax}, {}),
        ({"score": lambda q, k: q @ k.mT / 2, "num_key_heads": 1, "alibi": True}, {"num_key_heads": 1, "alibi": True}),
        ({"score": lambda q, k: q @ k.mT / 2, "causal": True, "rotary": True}, {"causal": True, "rotary": True}),
    ],
)
def test_heads_take_the_same_parts(own, named):
    torch.manual_seed(3)
    heads, want = foci.MultiHeadAttention(12, 3, **own), foci.MultiHeadAttention(12, 3, **named)
    want.load_state_dict(heads.state_dict(), strict=False)
    x, mask = torch.randn(2, 7, 12), masks.keys(masks.lengths([5, 0], 7))
    if "normalize" in own and "score" in own:  # a sink is a further score of 0
        assert (heads(x, x, mask=mask).weights.dense().sum(dim=-1)[0] < 1).all()
        heads(x, x, mask=mask).output.sum().backward()
        assert heads.normalize.score.grad.abs() > 0
    else:
        one, other = heads(x, x, mask=mask), want(x, x, mask=mask)
        torch.testing.assert_close(one.output, other.output)
        torch.testing.assert_close(one.weights.dense(), other.weights.dense())
    assert torch.equal(copy.deepcopy(heads)(x, x, mask=mask).output, heads(x, x, mask=mask).output)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"score": "additive"}, ConfigError, "score is 'additive', expected scaled_dot, dot, cosine, or a module"),
        ({"normalize": "sofmax"}, ConfigError, "unknown normalizer 'sofmax'"),
        ({"score": nn.Linear(2, 2)}, ConfigError, "score Linear: it takes"),
        ({"score": distance, "sink": "zero"}, ConfigError, "sink is 'zero' with score 'distance'"),
        ({"score": distance, "scale": 0.5}, ConfigError, "scale is 0.5 with score 'distance'"),
        ({"normalize": lambda s, m: s.softmax(-1)}, ConfigError, "gives weight to masked positions"),
        ({"score": lambda q, k: q[..., :1]}, ShapeError, r"scores of shape \(2, 3, 7, 1\), expected \(2, 3, 7, 7\)"),
    ],
)
def test_heads_refuse_what_is_no_part(options, error, message):
    with pytest.raises(error, match=message):
        foci.MultiHeadAttention(12, 3, **options)(
            torch.randn(2, 7, 12), torch.randn(2, 7, 12), mask=masks.keys(masks.lengths([5, 0], 7))
        )


def test_a_score_of_ones_own_in_a_local_window_and_one_batch_for_many():
    mask = masks.keys(masks.lengths([11, 8], 11))
    own, named = (Attention(5, 5, score=s, focus="local_m", radius=2) for s in (lambda q, k: q @ k.mT, "dot"))
    torch.testing.assert_close(own(QUERY, KEY, mask=mask).output, named(QUERY, KEY, mask=mask).output)
    dot = Attention(score=torch.bmm and (lambda q, k: torch.bmm(q, k.mT)))  # bmm does not broadcast
    torch.testing.assert_close(dot(QUERY[:1], KEY).output, Attention(score="dot")(QUERY[:1], KEY).output)


@pytest.mark.parametrize("score", ["location_aware", distance])
def test_a_normalizer_of_ones_own_goes_through_steps(score):
    """Chorowski's window and score read step by step, with any normalizer."""
    options = {"score": score, "focus": "median_window", "window": (2, 2)}
    options |= {"hidden_dim": 7} if score == "location_aware" else {}
    torch.manual_seed(3)
    named = Attention(5, 5, **options)
    own = copy.deepcopy(named)
    own.normalizer = Attention(normalize=plain_softmax).normalizer
    for mask in (None, MASK):
        for one, other in zip(named(QUERY, KEY, mask=mask), own(QUERY, KEY, mask=mask)):
            one, other = (part.dense() if isinstance(part, foci.Weights) else part for part in (one, other))
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize("focus", ["global", "causal", "local_m"])
def test_a_normalizer_with_parameters_is_trained(focus):
    sink = Sink()
    options = {"radius": 2} if focus == "local_m" else {}
    attention = Attention(5, 5, score="general", normalize=sink, focus=focus, **options)
    output, weights, _ = attention(QUERY, KEY)
    assert dict(attention.named_parameters())["normalizer.function.score"] is sink.score
    assert (weights.dense().sum(dim=-1) < 1).all()
    output.square().sum().backward()
    assert sink.score.grad.abs() > 0


@pytest.mark.parametrize("score", ["scaled_dot", distance, "location_aware"])
def test_a_focus_of_ones_own_is_a_mask_or_a_bias(score):
    options = {"hidden_dim": 7} if score == "location_aware" else {}
    torch.manual_seed(3)
    attention = Attention(5, 5, score=score, **options)
    for focus in (every_other, recency, Near()):
        torch.manual_seed(3)
        own = Attention(5, 5, score=score, focus=focus, **options)(QUERY, KEY, mask=MASK)
        found = focus(QUERY, KEY)
        with_mask = found.dtype == torch.bool
        want = attention(QUERY, KEY, mask=MASK & found if with_mask else MASK, bias=None if with_mask else found)
        torch.testing.assert_close(own.output, want.output)
        assert not torch.allclose(own.output, attention(QUERY, KEY, mask=MASK).output)


def test_a_focus_sees_the_key_before_its_projection_and_is_trained():
    near = Near()
    attention = Attention(5, 5, score="general", focus=near)
    attention(QUERY, KEY).output.square().sum().backward()
    assert near.strength.grad.abs() > 0
    seen = []
    attention = Attention(5, 5, 7, score="additive", focus=lambda q, k: seen.append((q, k)) or every_other(q, k))
    attention(QUERY, KEY)
    assert torch.equal(seen[0][0], QUERY)
    assert torch.equal(seen[0][1], KEY)


def test_a_stage_after_reading_and_a_focus_by_the_base_class():
    gate = Gate()
    attention = Attention(5, 5, score="general", focus=First(), after=gate)
    output, weights, state = attention(QUERY, KEY)
    torch.testing.assert_close(output, KEY[:, :1] * torch.sigmoid(gate.layer(QUERY)))
    assert weights.argmax().abs().max() == 0
    assert state is None
    assert {name for name, _ in attention.named_parameters()} == {
        "score.weight",
        "after.layer.weight",
        "after.layer.bias",
    }


def test_a_stage_keeps_the_mask_rule():
    after = lambda query, attended: attended._replace(output=attended.output + 1.0)  # noqa: E731
    output, _, _ = Attention(5, 5, after=after)(QUERY, KEY, mask=MASK)
    assert (output[1] == 0).all()
    torch.testing.assert_close(output[0], Attention(5, 5)(QUERY, KEY, mask=MASK).output[0] + 1.0)


def test_rows_without_positions_need_no_case_and_have_finite_gradients():
    query = QUERY.clone().requires_grad_()
    for read in (
        lambda: foci.attend(query, KEY, KEY, MASK, normalize=plain_softmax),
        lambda: Attention(5, 5, normalize=plain_softmax)(query, KEY, mask=MASK),
    ):
        query.grad = None
        output, weights, _ = read()
        assert (output[1] == 0).all()
        assert (weights.dense()[1] == 0).all()
        output.sum().backward()
        assert query.grad.isfinite().all()
        assert query.grad[0].abs().sum() > 0


def test_a_sampler_of_ones_own_gives_a_log_probability():
    def sampler(scores, mask):
        weights = plain_softmax(scores, mask)
        return weights, weights.amax(dim=-1).log()

    weights = Attention(5, 5, normalize=sampler)(QUERY, KEY, mask=MASK).weights
    assert weights.log_prob.shape == (2, 3)
    assert (weights.log_prob[1] == 0).all()


# ---- refused


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"score": nn.Linear(5, 5)}, r"score Linear: it takes .*called as score\(query, key\)"),
        ({"score": distance(QUERY, KEY)}, r"score is a Tensor, expected a name, or a function or module called as"),
        ({"score": Additive}, r"score is the class Additive, expected an object. Build it: Additive\(…\)"),
        ({"score": nn.Module()}, "score is a Module.*It has no forward"),
        ({"score": Dot(7)}, "query_dim is 5, but that of the score Dot is 7"),
        ({"focus": nn.Identity()}, r"focus Identity: it takes .*called as focus\(query, key\)"),
        ({"focus": {}}, r"focus is a dict, expected a name, or a function or module called as focus\(query, key\)"),
        ({"normalize": torch.softmax}, r"normalizer softmax: the arguments.*called as normalizer\(scores, mask\)"),
        ({"normalize": lambda scores: scores}, r"normalizer <lambda>: it takes \(scores\)"),
        ({"after": 3}, "after is a int, expected"),
        ({"after": nn.Identity()}, r"after Identity: it takes .*called as after\(query, attended\)"),
        (
            {"score": "location_aware", "focus": SlidingWindow(1, 1), "hidden_dim": 7},
            "the score is LocationAware.*Slid",
        ),
        ({"score": "bilnear"}, "unknown score 'bilnear'"),
        ({"radius": 3}, "radius is 3 and has no effect here.*local_m, local_p"),
        ({"window": (1, 1)}, "window is .* has no effect"),
        ({"max_length": 9, "score": "general"}, "max_length is 9 and has no effect"),
        ({"hidden_dim": 9}, "hidden_dim is 9 and has no effect"),
        ({"hidden_dim": 9, "score": distance}, "a part of your own is built with its own options"),
    ],
)
def test_what_is_no_part_or_has_no_effect_is_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        Attention(5, 5, **options)


def test_a_subclass_with_a_forward_that_nobody_would_call_is_refused():
    with pytest.raises(ConfigError, match="Mine: it has a forward, which foci.Attention does not call"):

        class Mine(ScoreModule):
            def forward(self, query, key):
                return query @ key.mT


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"score": lambda q, k: None}, ConfigError, r"score <lambda>: it returned a NoneType, expected scores"),
        ({"score": lambda q, k: q @ k.mT[..., 1:]}, ShapeError, r"scores of shape \(2, 3, 10\), expected \(2, 3, 11\)"),
        ({"score": lambda q, k: (q @ k.mT).double()}, ShapeError, r"scores of dtype torch.float64"),
        ({"normalize": lambda s, m: 3}, ConfigError, "normalizer <lambda>: it returned a int, expected weights"),
        ({"normalize": lambda s, m: (s, s, s, s)}, ConfigError, "returned a tuple of 4, expected weights"),
        ({"normalize": lambda s, m: s.sum(-1)}, ShapeError, r"weights of shape \(2, 3\), expected \(2, 3, 11\)"),
        ({"normalize": lambda s, m: (plain_softmax(s, m), s)}, ShapeError, r"log_prob of shape \(2, 3, 11\)"),
        ({"normalize": lambda s, m: s.softmax(-1)}, ConfigError, "gives weight to masked positions"),
    ],
)
def test_wrong_results_are_errors_at_the_first_call(options, error, message):
    for read in (Attention(5, 5, **options), lambda *inputs, **mask: foci.attend(*inputs, KEY, **mask, **options)):
        with pytest.raises(error, match=message):
            read(QUERY, KEY, mask=MASK)


class Leaky(FocusModule):
    def read(self, reading):
        return reading._replace(mask=None).attend()


class Tensors(FocusModule):
    def read(self, reading):
        weights = torch.ones(2, 3, 11)
        return AttentionOutput(weights @ reading.memory.value, weights)


class OneRow(ScoreModule):
    def compare(self, query, key, prepared=None):
        return distance(query, key)[:, :1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"focus": Leaky()}, "its parts give weight to masked positions"),
        ({"focus": Tensors()}, "an AttentionOutput of a Tensor and a Tensor, expected.*Weights.from_tensor"),
        ({"focus": lambda q, k: None}, "focus <lambda>: it returned a NoneType, expected a boolean mask or a bias"),
        ({"focus": lambda q, k: torch.ones(3, 11)}, r"focus <lambda>: bias has shape \(3, 11\)"),
        ({"focus": lambda q, k: torch.ones(3, 11) > 0}, r"focus <lambda>: mask has shape \(3, 11\)"),
        ({"score": OneRow()}, r"returned output has shape \(2, 1, 5\), expected \(2, 3, 5\)|mask has shape"),
        ({"after": lambda q, a: a.output}, "after: it returned a Tensor, expected a foci.AttentionOutput"),
    ],
)
def test_wrong_reads_are_errors_at_the_first_call(options, message):
    with pytest.raises((ConfigError, ShapeError), match=message):
        Attention(5, 5, **options)(QUERY, KEY, mask=MASK)


def test_nothing_is_checked_twice(monkeypatch):
    calls = []

    def counted(scores, mask):
        calls.append(torch.Tensor.any)
        return plain_softmax(scores, mask)

    attention = Attention(5, 5, normalize=counted)
    attention(QUERY, KEY, mask=MASK)
    before = vars(attention).copy(), vars(attention.normalizer).copy()
    for name in ("check_returned", "check_takes"):
        monkeypatch.setattr(f"foci.functional.own_parts.{name}", None)
    attention(QUERY, KEY, mask=MASK)
    attention(QUERY, KEY)
    foci.attend(QUERY, KEY, KEY, MASK, normalize=counted)
    assert len(calls) == 4, "no call is made to check"
    assert (vars(attention), vars(attention.normalizer)) == before, "nothing is kept on the modules"


# ---- copies and programs


def own() -> Attention:
    torch.manual_seed(3)
    return Attention(5, 5, score=Weighted(), normalize=Sink(), focus=Near(), after=Gate())


def test_copies_read_the_same():
    attention = own()
    want = attention(QUERY, KEY, mask=MASK).output
    for other in (copy.deepcopy(attention), pickle.loads(pickle.dumps(attention))):
        assert torch.equal(other(QUERY, KEY, mask=MASK).output, want)
        assert not {*map(id, other.parameters())} & {*map(id, attention.parameters())}
    fresh = own()
    fresh.load_state_dict(attention.state_dict())
    assert torch.equal(fresh(QUERY, KEY, mask=MASK).output, want)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"score": distance, "normalize": relu_share, "focus": every_other}])
def test_a_program_with_parts_of_ones_own_reads_the_same(options):
    attention = Attention(5, 5, **options) if options else own()
    want = attention(QUERY, KEY, mask=MASK)
    torch._dynamo.reset()
    compiled = torch.compile(attention, fullgraph=True, backend="aot_eager")(QUERY, KEY, mask=MASK)
    batch, keys = (torch.export.Dim(name, max=23) for name in ("batch", "keys"))
    shapes = {"query": {0: batch}, "key": {0: batch, 1: keys}, "mask": {0: batch, 2: keys}}
    exported = torch.export.export(attention, (QUERY, KEY), {"mask": MASK}, dynamic_shapes=shapes).module()
    for read in (compiled, exported(QUERY, KEY, mask=MASK)):
        torch.testing.assert_close(read.output, want.output)
        torch.testing.assert_close(read.weights.dense(), want.weights.dense())


def test_every_named_part_is_found():
    assert {"softmax", "sample"} <= {*NORMALIZERS}
    assert {"dot", "additive"} <= {*SCORES}
    assert {"global", "local_p"} <= {*FOCUSES}
    assert isinstance(Attention(5, 5, score=LocationAware(5, 5)).score, LocationAware)


class LowRank(ScoreModule):
    """A dot product after projections to few features."""

    def __init__(self, query_dim, key_dim, rank):
        super().__init__(query_dim, key_dim)
        self.query_layer, self.key_layer = nn.Linear(query_dim, rank), nn.Linear(key_dim, rank)

    def project_query(self, query):
        return self.query_layer(query)

    def project_key(self, key):
        return self.key_layer(key)


@pytest.mark.parametrize("kind", [scores.Additive, scores.Concat, scores.General, scores.Dot, scores.Cosine, LowRank])
def test_a_score_module_compares_heads_each_alone(kind):
    score = kind(6, 6, 5) if kind in (scores.Additive, scores.Concat, LowRank) else kind(6, 6)
    query, key = torch.randn(3, 2, 4, 6), torch.randn(3, 2, 7, 6)
    alone = torch.stack([score(query[:, head], key[:, head]) for head in range(2)], dim=1)
    torch.testing.assert_close(score(query, key), alone)
    torch.testing.assert_close(score(query, key[:1, :1])[1, 1], score(query[1:2, 1], key[:1, 0])[0])
    attended = foci.attend(query, key, key, score=score)
    torch.testing.assert_close(attended.output, alone.softmax(dim=-1) @ key)
    heads, x = foci.MultiHeadAttention(12, 2, score=score), torch.randn(3, 4, 12)
    mine = heads(x, x)
    by_hand = heads.project_query(x), heads.prepare(x).key
    torch.testing.assert_close(mine.weights.dense(), score(*by_hand).softmax(dim=-1))
    mine.output.sum().backward()
    assert all(one.grad is not None for one in score.parameters())


def test_a_score_that_depends_on_the_previous_weights_is_refused_without_them():
    score, x = scores.LocationAware(6, 6, 5), torch.randn(2, 3, 6)
    for call in (lambda: foci.attend(x, x, x, score=score), lambda: foci.MultiHeadAttention(6, 1, score=score)(x, x)):
        with pytest.raises(ConfigError, match="score LocationAware: it depends on the weights of the previous query"):
            call()


@pytest.mark.parametrize("name", ["additive", "bahdanau", "luong", "chorowski"])
def test_a_name_of_a_score_with_parameters_is_no_score_of_heads(name):
    with pytest.raises(ConfigError, match=f"score is '{name}', expected scaled_dot, dot, cosine, or a module with"):
        foci.MultiHeadAttention(6, 2, score=name)
