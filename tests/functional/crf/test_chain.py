"""The linear-chain CRF against every tag sequence, one by one, and against pytorch-crf where that is defined."""

import itertools
import math
import re

import pytest
import torch
import torchcrf
from hypothesis import given, settings
from hypothesis import strategies as st

from foci import masks
from foci.errors import ConfigError, DataError, ShapeError, UnknownNameError
from foci.functional import crf
from foci.mechanisms.structured import CRF, constraints

K, T = 3, 5
NUM_SEQUENCES = K**T

PATTERNS = torch.tensor(
    [
        [1, 1, 1, 1, 1],
        [0, 1, 1, 1, 1],  # BERT's [CLS]
        [0, 0, 0, 1, 1],  # padding on the left
        [1, 1, 0, 0, 0],  # padding on the right
        [1, 0, 0, 1, 0],  # a hole
        [0, 1, 0, 1, 1],
        [0, 0, 1, 0, 0],
        [0, 0, 0, 0, 0],
    ],
    dtype=torch.bool,
)
B = len(PATTERNS)


def make_chain(kind, seed=0, batch=B, steps=T, tags=K):
    """emissions, transitions, start, end: free, with a few forbidden moves, or with no way beyond two steps."""
    torch.manual_seed(seed)
    emissions = torch.randn(batch, steps, tags, dtype=torch.float64)
    transitions = torch.randn(tags, tags, dtype=torch.float64)
    start, end = torch.randn(2, tags, dtype=torch.float64)
    if kind == "forbidden":
        transitions[0, 1] = transitions[2, 2] = start[1] = end[0] = -torch.inf
        emissions[:, 0, 2] = -torch.inf
    if kind == "dead end":
        # Only 0 -> 1: two steps have one sequence, three have none, one step has none either.
        transitions[:] = start[1:] = end[0] = -torch.inf
        transitions[0, 1] = 0.5
    return emissions, transitions, start, end


def every_sequence(emissions, transitions, start, end, valid):
    """(score, tags) of every allowed sequence of one row, best first; tags are -1 at masked steps."""
    steps = [t for t in range(len(valid)) if valid[t]]
    emissions, transitions, start, end = (x.tolist() for x in (emissions, transitions, start, end))
    found = []
    for choice in itertools.product(range(len(start)), repeat=len(steps)):
        score, tags = 0.0, [-1] * len(valid)
        for place, (step, tag) in enumerate(zip(steps, choice)):
            score += emissions[step][tag]
            score += start[tag] if place == 0 else transitions[choice[place - 1]][tag]
            score += end[tag] if place == len(steps) - 1 else 0.0
            tags[step] = tag
        if score > -math.inf:
            found.append((score, tags))
    return sorted(found, reverse=True)


def log_total(sequences):
    return math.log(sum(math.exp(score) for score, _ in sequences)) if sequences else -math.inf


def close(have, want):
    torch.testing.assert_close(have, torch.as_tensor(want, dtype=have.dtype), rtol=1e-9, atol=1e-9)


def brute_force_agrees(chain, mask, ranks):
    emissions, *rest = chain
    every = [every_sequence(row, *rest, valid) for row, valid in zip(emissions, mask)]
    totals = [log_total(sequences) for sequences in every]
    close(crf.log_partition(*chain, mask), totals)

    wanted = torch.zeros_like(emissions)
    for row, sequences in enumerate(every):
        for score, tags in sequences:
            for step, tag in enumerate(tags):
                if tag >= 0:
                    wanted[row, step, tag] += math.exp(score - totals[row])
    close(crf.marginals(*chain, mask), wanted)

    for k in ranks:
        tags, scores = crf.viterbi(*chain, mask, k)
        assert tags.shape == (*mask.shape[:1], k, mask.shape[1])
        nothing = (-math.inf, [-1] * mask.shape[1])
        for row, sequences in enumerate(every):
            best = sequences[:k] + [nothing] * (k - len(sequences))
            close(scores[row], [score for score, _ in best])
            assert tags[row].tolist() == [sequence for _, sequence in best]


@pytest.mark.parametrize("kind", ["free", "forbidden", "dead end"])
def test_every_sequence_one_by_one(kind):
    brute_force_agrees(make_chain(kind), PATTERNS, ranks=[1, 2, 7, NUM_SEQUENCES + 2])


@pytest.mark.parametrize("kind", ["free", "forbidden", "dead end"])
def test_likelihood_of_every_sequence(kind):
    emissions, *rest = make_chain(kind, batch=NUM_SEQUENCES)
    every = torch.tensor(list(itertools.product(range(K), repeat=T)))
    for valid in PATTERNS:
        row = emissions[:1]  # one row's scores, tagged in every way
        mask = valid.expand(NUM_SEQUENCES, T)
        have = crf.log_likelihood(row.expand(NUM_SEQUENCES, T, K), *rest, mask, every)
        allowed = {tuple(tags): score for score, tags in every_sequence(row[0], *rest, valid)}
        total = log_total([(score, ()) for score in allowed.values()])
        named = [tuple(torch.where(valid, tags, -1).tolist()) for tags in every]
        close(have, [allowed[tags] - total if tags in allowed else -math.inf for tags in named])


@settings(max_examples=20, derandomize=True)
@given(
    mask=st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=2, max_size=2),
    forbidden=st.lists(st.booleans(), min_size=8, max_size=8),
    seed=st.integers(0, 99),
)
def test_any_mask_and_any_constraint(mask, forbidden, seed):
    emissions, transitions, start, end = make_chain("free", seed, batch=2, steps=4, tags=2)
    holes = torch.tensor(forbidden)
    transitions = transitions.masked_fill(holes[:4].view(2, 2), -torch.inf)
    start, end = start.masked_fill(holes[4:6], -torch.inf), end.masked_fill(holes[6:], -torch.inf)
    chain = [x.requires_grad_() for x in (emissions, transitions, start, end)]
    brute_force_agrees([x.detach() for x in chain], torch.tensor(mask), ranks=[1, 3, 17])

    mask = torch.tensor(mask)
    total = crf.log_partition(*chain, mask)
    best = crf.viterbi(*chain, mask, 3).scores
    tags = torch.zeros(2, 4, dtype=torch.long)
    likelihood = crf.log_likelihood(*chain, mask, tags)
    pieces = [x.masked_fill(x == -torch.inf, 0.0).sum() for x in (total, best, likelihood)]
    (sum(pieces) + crf.marginals(*chain, mask).square().sum()).backward()
    assert all(x.grad.isfinite().all() for x in chain)


@pytest.mark.parametrize("kind", ["free", "forbidden", "dead end"])
def test_the_gradient_of_log_partition_is_the_marginals(kind):
    emissions, *rest = make_chain(kind)
    emissions.requires_grad_()
    crf.log_partition(emissions, *rest, PATTERNS).sum().backward()
    close(emissions.grad, crf.marginals(emissions, *rest, PATTERNS).detach())


@pytest.mark.parametrize("kind", ["free", "forbidden", "dead end"])
def test_gradcheck(kind):
    chain = make_chain(kind, batch=2, steps=3)
    mask = torch.tensor([[True, True, True], [True, False, True]])
    holes = [x == -torch.inf for x in chain]
    tags = torch.tensor([[2, 1, 2], [0, -100, 1]])

    def finite(function, *arguments):
        def call(*leaves):
            filled = [x.masked_fill(hole, -torch.inf) for x, hole in zip(leaves, holes)]
            result = function(*filled, mask, *arguments)
            result = result.scores if isinstance(result, crf.BestSequences) else result
            return result.masked_fill(result == -torch.inf, 0.0)

        return call

    leaves = [x.masked_fill(hole, 0.0).requires_grad_() for x, hole in zip(chain, holes)]
    assert torch.autograd.gradcheck(finite(crf.log_partition), leaves)
    assert torch.autograd.gradcheck(finite(crf.log_likelihood, tags), leaves)
    assert torch.autograd.gradcheck(finite(crf.marginals), leaves)
    assert torch.autograd.gradcheck(finite(crf.viterbi, 3), leaves)
    if kind == "forbidden":
        assert torch.autograd.gradgradcheck(finite(crf.log_partition), leaves)


def test_a_row_without_any_sequence_has_no_gradient():
    chain = [x.requires_grad_() for x in make_chain("dead end")]
    likelihood = crf.log_likelihood(*chain, PATTERNS, torch.zeros(B, T, dtype=torch.long))
    total = crf.log_partition(*chain, PATTERNS)
    dead = total.isneginf()
    assert dead.tolist() == [size not in (0, 2) for size in PATTERNS.sum(dim=1)]
    assert likelihood.tolist() == [0.0 if size == 0 else -math.inf for size in PATTERNS.sum(dim=1)]
    (likelihood.sum() + total.sum()).backward()
    assert all(x.grad.isfinite().all() for x in chain)
    assert (chain[0].grad[dead] == 0).all()
    assert (chain[0].grad[~dead] != 0).any()


def test_masked_steps_are_skipped_whatever_they_hold():
    emissions, *rest = make_chain("free")
    spoilt = emissions.masked_fill(~PATTERNS.unsqueeze(-1), torch.nan).requires_grad_()
    tags = torch.randint(K, PATTERNS.shape)
    spoilt_tags = tags.masked_fill(~PATTERNS, -100)
    likelihood = crf.log_likelihood(spoilt, *rest, PATTERNS, spoilt_tags)
    assert torch.equal(likelihood, crf.log_likelihood(emissions, *rest, PATTERNS, tags))
    likelihood.sum().backward()
    assert spoilt.grad.isfinite().all()
    assert (spoilt.grad[~PATTERNS] == 0).all()

    for row, valid in enumerate(PATTERNS):  # alone and without its holes, a row has the same result
        alone = emissions[row : row + 1, valid]
        close(crf.log_likelihood(alone, *rest, None, tags[row : row + 1, valid]), likelihood[row : row + 1])
        close(crf.marginals(alone, *rest)[0], crf.marginals(spoilt, *rest, PATTERNS)[row, valid])
        best = crf.viterbi(spoilt, *rest, PATTERNS, 2).tags[row][:, valid]
        assert torch.equal(crf.viterbi(alone, *rest, None, 2).tags[0], best)


def test_no_mask_is_a_mask_of_true():
    chain, mask = make_chain("forbidden"), torch.ones(B, T, dtype=torch.bool)
    assert torch.equal(crf.log_partition(*chain), crf.log_partition(*chain, mask))
    assert torch.equal(crf.marginals(*chain), crf.marginals(*chain, mask))
    assert torch.equal(crf.viterbi(*chain, k=3).tags, crf.viterbi(*chain, mask, 3).tags)


def test_long_sequences_neither_overflow_nor_drift():
    emissions, *rest = make_chain("free", batch=2, steps=401)
    emissions = 50 * emissions
    weights = crf.marginals(emissions, *rest)
    close(weights.sum(dim=-1), torch.ones(2, 401))
    narrow = crf.log_partition(*(x.float() for x in (emissions, *rest)))
    torch.testing.assert_close(narrow.double(), crf.log_partition(emissions, *rest), rtol=1e-5, atol=0)


def test_same_as_pytorch_crf():
    torch.manual_seed(0)
    ours, peer = CRF(5).double(), torchcrf.CRF(5, batch_first=True).double()
    peer.load_state_dict(
        {"transitions": ours.transitions, "start_transitions": ours.start, "end_transitions": ours.end}
    )
    emissions = torch.randn(7, 11, 5, dtype=torch.float64, requires_grad=True)
    tags = torch.randint(5, (7, 11))
    lengths = torch.tensor([11, 1, 3, 7, 2, 10, 5])
    mask = masks.lengths(lengths, 11)

    have, want = ours.log_likelihood(emissions, tags, mask), peer(emissions, tags, mask, reduction="none")
    close(have, want)
    leaves = [emissions, ours.transitions, ours.start, ours.end]
    peer_leaves = [emissions, peer.transitions, peer.start_transitions, peer.end_transitions]
    for mine, theirs in zip(torch.autograd.grad(have.sum(), leaves), torch.autograd.grad(want.sum(), peer_leaves)):
        close(mine, theirs)
    best = ours.viterbi(emissions, mask).tags[:, 0]
    assert [row[:size].tolist() for row, size in zip(best, lengths)] == peer.decode(emissions, mask)


def test_module_reads_like_a_pool():
    torch.manual_seed(0)
    module = CRF(K).double()
    value = torch.randn(B, T, K, dtype=torch.float64)
    output, weights, state = module(value, PATTERNS)
    assert state is None
    assert weights.shape == (B, T, K)
    parameters = (module.transitions, module.start, module.end)
    want = crf.marginals(value, *parameters, PATTERNS)
    assert torch.equal(weights.dense(), want)
    close(output, want.sum(dim=1))
    close(output.sum(dim=-1), PATTERNS.sum(dim=-1))
    assert torch.equal(module.marginals(value, PATTERNS), want)
    close(module.log_partition(value, PATTERNS), crf.log_partition(value, *parameters, PATTERNS))
    with torch.no_grad():
        assert torch.equal(module(value, PATTERNS).weights.dense(), want)


def test_learns_a_tag_sequence():
    torch.manual_seed(0)
    module = CRF(K)
    emissions = torch.zeros(2, T, K)  # only the transitions determine the tags
    tags = torch.tensor([[0, 1, 2, 0, 1], [-100, 0, 1, 2, 0]])
    mask = tags != -100
    optimizer = torch.optim.Adam(module.parameters(), lr=0.5)
    for _ in range(20):
        optimizer.zero_grad()
        (-module.log_likelihood(emissions, tags, mask).mean()).backward()
        optimizer.step()
    assert torch.equal(module.viterbi(emissions, mask).tags[:, 0], tags.masked_fill(~mask, -1))


GRAMMARS = {
    "BIO": (["O", "B-x", "I-x", "B-y-z", "I-y-z"], r"(O|B-x(I-x)*|B-y-z(I-y-z)*)*"),
    "BIOES": (
        ["O", "B-x", "I-x", "E-x", "S-x", "B-y", "E-y"],
        r"(O|S-x|B-x(I-x)*E-x|B-yE-y)*",
    ),
}


@pytest.mark.parametrize("scheme", GRAMMARS)
def test_constraints_allow_just_what_the_scheme_allows(scheme):
    names, grammar = GRAMMARS[scheme]
    transitions, start, end = constraints(names, scheme)
    for size in (1, 2, 3, 4):
        for choice in itertools.product(range(len(names)), repeat=size):
            allowed = start[choice[0]] and end[choice[-1]]
            allowed = allowed and all(transitions[a, b] for a, b in itertools.pairwise(choice))
            assert bool(allowed) == bool(re.fullmatch(grammar, "".join(names[tag] for tag in choice)))


@pytest.mark.parametrize("scheme", GRAMMARS)
def test_constrained_tags_follow_the_scheme(scheme):
    torch.manual_seed(0)
    names, grammar = GRAMMARS[scheme]
    module = CRF(len(names), **constraints(names, scheme)._asdict())
    tags, scores = module.viterbi(torch.randn(7, 11, len(names)), torch.rand(7, 11) < 0.7, k=5)
    assert scores.isfinite().all()
    for sequence in tags.flatten(0, 1).tolist():
        assert re.fullmatch(grammar, "".join(names[tag] for tag in sequence if tag >= 0))
    inside = names.index("I-x")
    assert (module.marginals(torch.randn(2, 3, len(names)))[:, 0, inside] == 0).all()


def test_constraints_are_saved_and_barred_transitions_get_no_gradient():
    names, _ = GRAMMARS["BIOES"]
    made = constraints(names, "BIOES")
    module, other = CRF(len(names), **made._asdict()), CRF(len(names), **made._asdict())
    other.load_state_dict(module.state_dict())
    assert set(module.state_dict()) == {"transitions", "start", "end", *made._fields}
    value = torch.randn(2, T, len(names))
    assert torch.equal(module(value).output, other(value).output)
    module.log_partition(value).sum().backward()
    assert (module.transitions.grad[~made.allowed_transitions] == 0).all()
    assert (module.transitions.grad[made.allowed_transitions] > 0).any()
    assert repr(module) == "CRF(num_tags=7, allowed_transitions, allowed_start, allowed_end)"
    assert set(CRF(2).state_dict()) == {"transitions", "start", "end"}


@pytest.mark.parametrize(
    ("tags", "scheme", "error", "message"),
    [
        (["O", "B-x", "X-x"], "BIO", ConfigError, "'X-x' does not belong to the scheme BIO"),
        (["O", "S-x"], "BIO", ConfigError, "'S-x' does not belong to the scheme BIO"),
        (["O-x"], "BIO", ConfigError, "'O-x' does not belong"),
        (["O", ""], "BIO", ConfigError, "'' does not belong"),
        (["O", "I-x", "B-y", "I-y"], "BIO", ConfigError, "I-x can occur in no sequence of the scheme BIO"),
        (["O", "B-x", "I-x"], "BIOES", ConfigError, "B-x, I-x can occur in no sequence of the scheme BIOES"),
        (["O", "B", "B"], "BIO", ConfigError, "3 names, 2 of them different"),
        ([], "BIO", ConfigError, "0 names"),
        (["O"], "BIOE", UnknownNameError, "unknown scheme 'BIOE'. Did you mean 'BIOES'"),
    ],
)
def test_wrong_tag_names(tags, scheme, error, message):
    with pytest.raises(error, match=re.escape(message)):
        constraints(tags, scheme)


def test_empty_batch_no_steps_and_one_tag():
    module = CRF(K)
    for batch, steps in [(0, 5), (2, 0), (0, 0)]:
        value = torch.randn(batch, steps, K, requires_grad=True)
        output, weights, _ = module(value)
        assert torch.equal(output, torch.zeros(batch, K))
        assert weights.shape == (batch, steps, K)
        assert torch.equal(module.log_partition(value), torch.zeros(batch))
        tags = torch.zeros(batch, steps, dtype=torch.long)
        likelihood = module.log_likelihood(value, tags)
        assert torch.equal(likelihood, torch.zeros(batch))
        likelihood.sum().backward()
        best = module.viterbi(value, k=2)
        assert best.tags.shape == (batch, 2, steps)
        assert torch.equal(best.scores, torch.tensor([0.0, -torch.inf]).expand(batch, 2))

    single = CRF(1)
    value = torch.randn(2, T, 1)
    assert torch.equal(single(value).weights.dense(), torch.ones(2, T, 1))
    torch.testing.assert_close(single.viterbi(value).scores[:, 0], single.log_partition(value))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32(dtype):
    torch.manual_seed(0)
    module = CRF(K).to(dtype)
    value = torch.randn(2, 101, K).to(dtype).requires_grad_()
    tags = torch.randint(K, (2, 101))
    have = module.log_likelihood(value, tags)
    wide = CRF(K)
    wide.load_state_dict(module.state_dict())
    assert have.dtype == dtype
    torch.testing.assert_close(have, wide.log_likelihood(value.float(), tags).to(dtype))
    have.sum().backward()
    assert value.grad.dtype == dtype
    assert value.grad.isfinite().all()
    assert module(value).output.dtype == module.viterbi(value, k=2).scores.dtype == dtype


def test_autocast_mixes_dtypes_and_answers_in_the_wider():
    module, value = CRF(K), torch.randn(2, T, K).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        assert module.log_partition(value).dtype == torch.float32
    with pytest.raises(ShapeError, match=r"transitions has dtype torch\.float32, but value has torch\.bfloat16"):
        module(value)


def test_forward_changes_no_attribute():
    module = CRF(K)
    before = dict(vars(module))
    module(torch.randn(2, T, K))
    assert vars(module) == before


def test_wrong_tags():
    module, value = CRF(K), torch.randn(2, T, K)
    for bad in (-1, -100, K):
        tags = torch.zeros(2, T, dtype=torch.long)
        tags[1, 3] = bad
        with pytest.raises(DataError, match="tags lie outside 0 to 2 at steps that exist"):
            module.log_likelihood(value, tags)
        mask = torch.ones(2, T, dtype=torch.bool)
        mask[1, 3] = False
        assert module.log_likelihood(value, tags, mask).isfinite().all()
    short = torch.zeros(2, T, dtype=torch.int16)
    assert torch.equal(module.log_likelihood(value, short), module.log_likelihood(value, short.long()))


def test_wrong_shapes():
    value = torch.randn(2, T, K)
    emissions, transitions, start, end = value, torch.randn(K, K), torch.randn(K), torch.randn(K)
    module = CRF(K)

    def fails(message, call, *arguments, error=ShapeError):
        with pytest.raises(error, match=re.escape(message)):
            call(*arguments)

    fails("CRF: value has shape (2, 5, 2), expected (batch, step, 3)", module, value[..., :2])
    fails("CRF: emissions has shape (5, 3), expected (batch, step, 3)", module.viterbi, value[0])
    fails("CRF: mask has shape (2, 4), expected (batch, position) = (2, 5)", module, value, PATTERNS[:2, :4])
    fails("CRF: mask has dtype torch.float32, expected torch.bool", module, value, torch.ones(2, T))
    tags = torch.zeros(2, 4, dtype=torch.long)
    fails("tags has shape (2, 4), expected (batch, step) = (2, 5)", module.log_likelihood, value, tags)
    fails("tags is torch.float32, expected a tensor of whole", module.log_likelihood, value, torch.zeros(2, T))
    fails("viterbi: k is 0", module.viterbi, value, None, 0, error=ConfigError)

    fails("start has shape (2,), expected (3)", crf.marginals, emissions, transitions, start[:2], end)
    fails("end has shape (2,), expected (3)", crf.viterbi, emissions, transitions, start, end[:2])
    fails("transitions has shape (2, 3), expected (3, 3)", crf.marginals, emissions, transitions[:2], start, end)
    fails("expected at least one tag", crf.marginals, value[..., :0], transitions[:0, :0], start[:0], end[:0])
    fails("start has dtype torch.float64", crf.log_partition, emissions, transitions, start.double(), end)

    fails("CRF: num_tags is 0", CRF, 0, error=ConfigError)
    for name, allowed, message in [
        ("allowed_transitions", torch.ones(2, 3, dtype=torch.bool), "has shape (2, 3), expected (3, 3)"),
        ("allowed_start", torch.ones(2, dtype=torch.bool), "has shape (2,), expected (3,)"),
        ("allowed_end", torch.ones(3), "has dtype torch.float32, expected torch.bool"),
    ]:
        with pytest.raises(ShapeError, match=re.escape(f"CRF: {name} {message}")):
            CRF(3, **{name: allowed})


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiles_whole_in_values_and_gradients(backend):
    torch.manual_seed(0)
    names, _ = GRAMMARS["BIO"]
    module = CRF(len(names), **constraints(names)._asdict()).double()
    steps = T if backend == "aot_eager" else 2  # the loop over the steps is unrolled, and inductor compiles slowly
    value = torch.randn(B, steps, len(names), dtype=torch.float64, requires_grad=True)
    tags = torch.randint(2, (B, steps))

    def everything(value, mask, tags):
        output, weights, _ = module(value, mask)
        best = module.viterbi(value, mask, 3)
        return output, weights.dense(), module.log_likelihood(value, tags, mask), best.scores, best.tags

    compiled = torch.compile(everything, fullgraph=True, backend=backend)
    for mask in (PATTERNS[:, :steps], PATTERNS[:, -steps:]):
        had, wanted = compiled(value, mask, tags), everything(value, mask, tags)
        for have, want in zip(had, wanted):
            torch.testing.assert_close(have, want)
        some = torch.randn_like(wanted[1])
        gradients = [
            torch.autograd.grad((some * weights).sum() + likelihood.sum(), [value, *module.parameters()])
            for _, weights, likelihood, *_ in (had, wanted)
        ]
        for have, want in zip(*gradients):
            torch.testing.assert_close(have, want)
