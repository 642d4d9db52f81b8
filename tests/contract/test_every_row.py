"""Properties of every row of the catalog and every variant, in all families."""

import inspect

import pytest
import torch
from cases import CHOOSING, EVERY_CASE, B, any_inputs, arguments, card, make, names, option, output_of, subject, tensors

import foci
from foci.catalog import MECHANISMS
from foci.contract import laws
from foci.errors import ShapeError
from foci.functional.rotary_options import Rotary

EVERY = list(MECHANISMS)


@pytest.mark.parametrize("name", EVERY)
def test_card_speaks_for_itself(name):
    row = MECHANISMS[name]
    assert row.family in ("attend", "pool", "pair", "memory", "map")
    for text in (row.summary, row.equation, row.paper, row.citation, row.names, row.complexity, row.differs):
        assert text, f"{row.doc} lacks a section"
    assert row.summary.endswith(".")


@pytest.mark.parametrize("name", EVERY_CASE)
def test_forward_changes_nothing_on_the_module(name):
    laws.nothing_is_kept(subject(name))


@pytest.mark.parametrize("name", EVERY_CASE)
def test_zeros_equal_vectors_and_large_numbers_stay_finite(name):
    laws.numbers_stay_finite(subject(name))


@pytest.mark.parametrize("name", EVERY_CASE)
def test_state_dict_round_trip(name):
    module, other = make(name), foci.build(name.partition("/")[0], **arguments(name)).eval()
    other.load_state_dict(module.state_dict())
    inputs = any_inputs(name)
    for ours, theirs in zip(tensors(module(*inputs)), tensors(other(*inputs))):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("name", EVERY_CASE)
def test_every_parameter_matters(name):
    module = make(name, torch.float64, train=True)
    result = module(*any_inputs(name, dtype=torch.float64))
    generator = torch.Generator().manual_seed(3)
    parts = [t for t in tensors(result) if t.is_floating_point()]
    log_prob = getattr(getattr(result, "weights", None), "log_prob", None)
    parts += [] if log_prob is None else [log_prob]
    loss = sum((torch.randn(t.shape, generator=generator, dtype=t.dtype) * t).sum() for t in parts)
    if not list(module.parameters()) or option(name, "normalize") == "hard":
        pytest.skip("no parameters, or no gradient to them")
    loss.backward()
    for path, parameter in module.named_parameters():
        assert parameter.grad is not None, path
        assert parameter.grad.isfinite().all(), path
        assert parameter.grad.abs().max() > 0, path


@pytest.mark.parametrize("name", EVERY_CASE)
def test_bfloat16(name):
    module = make(name, torch.bfloat16)
    result = module(*any_inputs(name, dtype=torch.bfloat16))
    assert output_of(result).dtype == torch.bfloat16
    assert all(t.isfinite().all() for t in tensors(result))
    if card(name).family in ("attend", "pool", "pair", "map"):
        assert result.weights.dense().dtype == torch.bfloat16
    exact = output_of(make(name)(*[t.float() for t in any_inputs(name, dtype=torch.bfloat16)]))
    if name not in CHOOSING and card(name).family != "memory" and name != "crf":
        # a choice may flip; sums over steps add up the rounding
        assert (output_of(result).float() - exact).abs().max() <= 0.05 * exact.abs().max()


@pytest.mark.parametrize("name", EVERY_CASE)
def test_the_default_dtype_does_not_matter(name):
    module, inputs = make(name, train=name not in CHOOSING and not option(name, "dropout")), any_inputs(name)
    want = tensors(module(*inputs))
    torch.set_default_dtype(torch.float64)
    try:
        got = tensors(module(*inputs))
    finally:
        torch.set_default_dtype(torch.float32)
    for ours, theirs in zip(got, want):
        assert ours.dtype == theirs.dtype
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("name", EVERY_CASE)
def test_empty_batch(name):
    result = make(name)(*any_inputs(name, batch=0))
    assert all(t.shape[0] == 0 for t in tensors(result))


@pytest.mark.parametrize("name", EVERY_CASE)
def test_eval_is_repeatable_and_rows_do_not_see_each_other(name):
    module, inputs = make(name), any_inputs(name)
    whole = tensors(module(*inputs))
    again = tensors(module(*inputs))
    for b in range(B):
        alone = tensors(module(*[t[b : b + 1] for t in inputs]))
        for one, two, three in zip(whole, again, alone):
            assert torch.equal(one, two)
            torch.testing.assert_close(one[b : b + 1], three, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", EVERY)
def test_wrong_rank_size_and_dtype_are_named(name):
    module, inputs = make(name), any_inputs(name)
    last = inputs[-1]
    with pytest.raises(ShapeError, match=r"has shape .*expected"):
        module(*inputs[:-1], last.unsqueeze(0).unsqueeze(0))
    with pytest.raises(ShapeError, match="dtype"):
        module(*inputs[:-1], last.long())
    first = inputs[0]
    wider = torch.cat([first, first], dim=1 if MECHANISMS[name].family == "map" else -1)
    if MECHANISMS[name].family != "map" or "channels" in MECHANISMS[name].example:
        with pytest.raises(ShapeError, match=rf"{tuple(wider.shape)}".replace("(", r"\(").replace(")", r"\)")):
            module(wider, *inputs[1:])


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_compiles_without_a_break(name):
    torch._dynamo.reset()
    module, inputs = make(name), any_inputs(name)
    # Some rows go through the whole compiler; for the others the tracing is what could break.
    backend = "inductor" if name in ("additive", "multi_head", "local_p", "pool") else "aot_eager"
    compiled = torch.compile(module, fullgraph=True, backend=backend)
    for ours, theirs in zip(tensors(module(*inputs)), tensors(compiled(*inputs))):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", EVERY_CASE)
def test_record_sees_it(name):
    laws.recording_sees_it(subject(name))


def own_part(*given):
    return given[-1]


CLASSES = {getattr(card.builder, "func", card.builder): name for name, card in reversed(MECHANISMS.items())}
OTHERS = {
    "score": "cosine",
    "normalize": "sigmoid",
    "focus": own_part,
    "dropout": 0.5,
    "after": own_part,
    "key_dim": 11,
    "num_heads": 3,
    "num_key_heads": 1,
    "rotary": Rotary(base=500.0),
    "relative": "shaw",
    "qk_norm": "layer",
    "window": (1, 0),
    "sink": "learned",
    "gate": "headwise",
    "initial_memory": "learned",
    "sentence_encoder": own_part,
    "kernel_size": 3,
    "output_bias": False,
    "allowed_transitions": torch.ones(5, 5, dtype=torch.bool),
    "allowed_start": torch.ones(5, dtype=torch.bool),
    "allowed_end": torch.ones(5, dtype=torch.bool),
}
"""Another value of an argument, where it is no size."""
BESIDE = {
    (foci.Attention, "query_dim"): {"score": "general"},
    (foci.Attention, "key_dim"): {"score": "general"},
    (foci.Attention, "hidden_dim"): {"score": "additive"},
    (foci.Attention, "radius"): {"focus": "local_m", "radius": 2},
    (foci.Attention, "window"): {"focus": "sliding_window", "window": (2, 3)},
    (foci.Attention, "max_length"): {"score": "location", "max_length": 31},
    (foci.MultiHeadAttention, "norm_epsilon"): {"qk_norm": "rms"},
    (foci.MultiHeadAttention, "rotary"): {"head_dim": 4},
    (foci.HierarchicalPool, "sentence_dim"): {"sentence_encoder": own_part, "sentence_dim": 3},
    (foci.HierarchicalPool, "sentence_encoder"): {"sentence_dim": 5},
    (foci.CBAM, "kernel_size"): {"kernel_size": 5},
    (foci.SpatialAttention, "kernel_size"): {"kernel_size": 5},
}
"""What an argument needs beside it to have an effect."""


def arguments_of_classes():
    found = []
    for kind, name in CLASSES.items():
        for argument, parameter in inspect.signature(kind).parameters.items():
            beside = {**MECHANISMS[name].example, **BESIDE.get((kind, argument), {})}
            before = beside.get(argument, parameter.default)
            plain = (
                not before
                if isinstance(before, bool)
                else OTHERS[argument]
                if argument in OTHERS
                else (before or 0) + 2
            )
            found.append(pytest.param(kind, beside, {argument: plain}, id=f"{kind.__name__}-{argument}"))
    return found


@pytest.mark.parametrize(("kind", "beside", "changed"), arguments_of_classes())
def test_every_argument_shows_in_the_repr(kind, beside, changed):
    printed = repr(kind(**beside))
    assert repr(kind(**{**beside, **changed})) != printed, printed


@pytest.mark.parametrize("name", EVERY)
def test_every_variant_shows_in_the_repr(name):
    row = MECHANISMS[name]
    printed = repr(row.builder(**row.example))
    assert all(repr(row.builder(**row.arguments(variant))) != printed for variant in row.variants), printed


def test_unknown_names_list_the_near_ones():
    with pytest.raises(foci.errors.UnknownNameError, match="'additive'"):
        foci.build("aditive")
    with pytest.raises(foci.errors.ConfigError, match="query_dim=5"):
        foci.build("additive", query_size=3)
    with pytest.raises(foci.errors.UnknownNameError, match="variant 'casual'. Did you mean 'causal'"):
        MECHANISMS["additive"].arguments("casual")
    assert names("map") == ["squeeze_excitation", "efficient_channel", "cbam", "spatial"]


@pytest.mark.parametrize("size", [0, -3, 2.5, "7", None])
@pytest.mark.parametrize("name", list(MECHANISMS))
def test_a_size_that_is_none_is_a_config_error(name, size):
    """Or it is left out, where None is a size: then it builds."""
    for argument, good in MECHANISMS[name].example.items():
        if isinstance(good, tuple):
            continue
        try:
            foci.build(name, **{**MECHANISMS[name].example, argument: size})
        except foci.errors.ConfigError as error:
            assert argument in str(error) or size is None  # noqa: PT017
        else:
            assert size is None, argument
