"""`foci.check`: what keeps the contract is not blamed, and what breaks a law is found by that law."""

import pytest
import torch
from cases import make
from torch import nn

import foci
from foci import masks
from foci.contract.laws import COMPILED, FIRST, LAWS
from foci.errors import ConfigError, UnknownNameError
from foci.outputs import AttentionOutput, PairOutput

NAMES = [law.name for law in LAWS]


def dots(query, key):
    return query @ key.mT / 2


def shares(scores, mask):
    return (scores if mask is None else scores.masked_fill(~mask, -torch.inf)).softmax(dim=-1)


def every_other(query, key):
    return (torch.arange(key.shape[1]) % 2 == 0).view(1, 1, -1)


class Gate(nn.Module):
    """A stage with parameters."""

    def __init__(self, size=6):
        super().__init__()
        self.layer = nn.Linear(size, size)

    def forward(self, query, attended):
        return attended._replace(output=attended.output * torch.sigmoid(self.layer(query)))


class Pool(nn.Module):
    """A pool that keeps the contract."""

    def __init__(self, value_dim=5):
        super().__init__()
        self.value_dim = value_dim
        self.vector = nn.Parameter(torch.linspace(-1.0, 1.0, value_dim))

    def forward(self, value, mask=None):
        value = value if mask is None else value.masked_fill(~mask.unsqueeze(-1), 0.0)
        weights = masks.masked_softmax(value @ self.vector, mask)
        return self.result((weights.unsqueeze(1) @ value).squeeze(1), weights)

    def result(self, output, weights):
        return AttentionOutput(output, foci.Weights.from_tensor(weights))


class LeakyPool(Pool):
    """Padding of NaN reaches the output."""

    def forward(self, value, mask=None):
        weights = masks.masked_softmax(value @ self.vector, mask)
        return self.result((weights.unsqueeze(1) @ value).squeeze(1), weights)


class MeanPool(Pool):
    """Adds a mean over the positions of the tensor, not of the mask."""

    def forward(self, value, mask=None):
        output, weights, _ = super().forward(value, mask)
        kept = value if mask is None else value.masked_fill(~mask.unsqueeze(-1), 0.0)
        return AttentionOutput(output + kept.mean(dim=1), weights)


class BiasedPool(Pool):
    """Rows without positions get the bias."""

    def __init__(self, value_dim=5):
        super().__init__(value_dim)
        self.bias = nn.Parameter(torch.ones(value_dim))

    def result(self, output, weights):
        return super().result(output + self.bias, weights)


class UnusedParameter(Pool):
    def __init__(self, value_dim=5):
        super().__init__(value_dim)
        self.forgotten = nn.Parameter(torch.ones(3))


class Remembering(Pool):
    """Keeps its last weights."""

    def result(self, output, weights):
        self.last = weights
        return super().result(output, weights)


class Compared(nn.Module):
    """A pair: the left positions, read by the mean of the right ones."""

    value_dim = 5

    def forward(self, left, right, left_mask=None, right_mask=None):
        left, right = (
            one if mask is None else one.masked_fill(~mask.unsqueeze(-1), 0.0)
            for one, mask in ((left, left_mask), (right, right_mask))
        )
        mask = None if left_mask is None else left_mask.unsqueeze(1) & right_mask.unsqueeze(2)
        weights = masks.masked_softmax(right @ left.mT, mask)
        return PairOutput((weights @ left).sum(dim=1), foci.Weights.from_tensor(weights))


class Brightness(nn.Module):
    """A map: each place by the mean of its channels."""

    def forward(self, features):
        weights = torch.sigmoid(features.mean(dim=1, keepdim=True))
        return AttentionOutput(features * weights, foci.Weights.from_tensor(weights))


KEEPING = {
    "a score": (dots, None),
    "a normalizer": (shares, None),
    "a focus": (every_other, "focus"),
    "a causal focus": (lambda query, key: masks.causal(query.shape[1], key.shape[1]), "focus"),
    "a stage": (Gate(), None),
    "a pool": (Pool(), None),
    "a pair": (Compared(), None),
    "a map": (Brightness(), None),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", KEEPING)
def test_what_keeps_the_contract_passes(name):
    part, kind = KEEPING[name]
    report = foci.check(part, kind, compile=name == "a score")
    assert report, report
    held = [one.law for one in report.findings if one.status == "holds"]
    assert FIRST.name in held
    assert len(held) >= (6 if name == "a map" else 10), report
    assert (COMPILED.name in held) == (name == "a score")


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", ["additive", "location_aware/sample", "hard", "local_p", "multi_head/causal", "pool", "crf", "ntm", "cbam"]
)
def test_mechanisms_of_foci_keep_it(case):
    kind = foci.catalog.card(case.partition("/")[0]).family
    sizes = {"value_dim": 5} if case == "crf" else {"channels": 7} if case == "cbam" else {}
    sizes |= {"query_dim": 5, "key_dim": 7} if case in ("additive", "location_aware/sample", "hard", "local_p") else {}
    report = foci.check(make(case), kind, **sizes)
    failing = {one.law for one in report.failing}
    # Recursions over steps are exported for one length.
    assert failing <= ({NAMES[-1]} if case in ("crf", "location_aware/sample") else set()), report


def leaking(scores, mask):
    return scores.softmax(dim=-1)


def detached(query, key):
    return dots(query, key.detach())


def in_float32(query, key):
    return dots(query.float(), key.float())


def of_one_head(query, key):
    return torch.einsum("bld,bsd->bls", query, key)


def negative(scores, mask):
    return shares(scores, mask) - shares(-scores, mask) / 2


def by_largest(scores, mask):
    closed = scores if mask is None else scores.masked_fill(~mask, -torch.inf)
    return (closed - closed.amax(dim=-1, keepdim=True)).softmax(dim=-1)


def exponentials(scores, mask):
    powers = scores.exp() if mask is None else scores.exp() * mask
    return powers / powers.sum(dim=-1, keepdim=True)


def distances(query, key):
    return -(query.unsqueeze(-2) - key.unsqueeze(-3)).square().sum(dim=-1).sqrt()


def of_its_length(query, key):
    return dots(query, key) * (2.0 if key.shape[1] > 9 else 1.0)


BREAKING = {
    "masked": (leaking, None),
    "padding may": (LeakyPool(), None),
    "rows that may": (BiasedPool(), None),
    "a row alone": (MeanPool(), None),
    "shares": (negative, None),
    "gradients are right": (detached, None),
    "every parameter": (UnusedParameter(), None),
    "stay finite": (exponentials, None),
    "bfloat16": (in_float32, None),
    "keeps nothing": (Remembering(), None),
    "no query": (by_largest, None),
    "heads": (of_one_head, None),
    "torch.export": (of_its_length, None),
}


@pytest.mark.slow
@pytest.mark.parametrize("law", BREAKING)
def test_what_breaks_a_law_is_found_by_it(law):
    (name,) = [name for name in NAMES if law in name]
    report = foci.check(*BREAKING[law])
    assert not report
    finding = next(one for one in report.findings if one.law == name)
    assert finding.status == "fails", report
    assert finding.reason in repr(report).replace("\n" + " " * 13, " ")


@pytest.mark.slow
def test_gradients_that_are_not_finite_are_found():
    (finding,) = foci.check(distances).failing
    assert finding.reason == "of zeros, gradients are NaN or infinite."


@pytest.mark.slow
def test_nothing_is_printed_beside_the_report(capfd):
    assert foci.check(lambda query, key: dots(query, key) * (2 if query.sum() > 0 else 1)).failing[-1].law == NAMES[-1]
    assert capfd.readouterr() == ("", "")


def test_every_law_can_fail():
    assert [name for name in NAMES if not any(law in name for law in BREAKING)] == ["foci.record sees its weights"]


def test_a_report_prints_itself_and_leaves_all_as_it_was():
    pool = Remembering()
    before = torch.get_rng_state()
    report = foci.check(pool)
    assert torch.equal(before, torch.get_rng_state())
    assert not hasattr(pool, "last")
    assert pool.vector.grad is None
    lines = repr(report).splitlines()
    assert lines[0].startswith("Remembering, of the family pool: ")
    assert "1 fail" in lines[0]
    assert "  fails      a call keeps nothing on the module" in lines
    assert "             Pass state in and return it." in lines


@pytest.mark.parametrize(
    ("part", "kind", "error", "message"),
    [
        (3, None, ConfigError, "it is a int, expected kind"),
        (nn.Linear(2, 2), "score", ConfigError, "score Linear: it takes .*protocol foci.mechanisms.parts.Score"),
        (lambda one, two: None, None, ConfigError, r"arguments are \(one, two\), expected kind=… to be one of"),
        (dots, "scores", UnknownNameError, "Did you mean 'score'"),
        (dots, "attend", ConfigError, "a attend mechanism is a function, expected a torch.nn.Module"),
    ],
)
def test_what_cannot_be_tried_is_refused(part, kind, error, message):
    with pytest.raises(error, match=message):
        foci.check(part, kind)


def test_what_cannot_be_called_is_the_first_finding():
    report = foci.check(lambda query, key: query)
    assert not report
    assert report.findings[0].status == "fails"
    assert "expected (3, 5, 7)" in report.findings[0].reason
    assert {one.status for one in report.findings[1:]} == {"not tried"}
