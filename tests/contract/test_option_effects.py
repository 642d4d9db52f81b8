"""Every option of every row and variant of the catalog changes what comes out, or is refused."""

import inspect

import pytest
import torch
from cases import EVERY_CASE, any_inputs, arguments, card, tensors
from cases import option as option_of

from foci.errors import ConfigError

OTHERS = {
    "after": lambda query, attended: attended._replace(output=attended.output.square()),
    "alibi": True,
    "allowed_end": torch.arange(5) < 4,
    "allowed_start": torch.arange(5) > 0,
    "allowed_transitions": ~torch.eye(5, dtype=torch.bool),
    "bias": False,
    "causal": True,
    "dropout": 0.5,
    "focus": "causal",
    "gate": "headwise",
    "head_dim": 8,
    "hidden_dim": 13,
    "initial_memory": "zero",
    "kernel_size": 5,
    "max_length": 29,
    "norm_epsilon": 0.5,
    "normalize": "sigmoid",
    "num_heads": 3,
    "num_key_heads": 1,
    "num_levels": 2,
    "num_points": 2,
    "num_queries": 2,
    "num_read_heads": 1,
    "num_slots": 11,
    "num_write_heads": 1,
    "output_bias": False,
    "position_dim": 3,
    "qk_norm": True,
    "radius": 1,
    "reduction": 3,
    "relative": "t5",
    "rotary": True,
    "scale": 0.1,
    "scale_by_length": True,
    "score": "cosine",
    "score_cap": 0.5,
    "sentence_dim": 3,
    "sentence_encoder": lambda sentences, exists: (sentences * exists.unsqueeze(-1)).cumsum(dim=1),
    "sharpening": 3.0,
    "shift_width": 5,
    "sink": "zero",
    "slot_dim": 3,
    "window": (1, 0),
}
"""A value of each option that differs from those of the cases."""

SIZES = {"channels", "input_dim", "key_dim", "model_dim", "num_tags", "query_dim", "value_dim"}
"""Sizes of the inputs, which are checked against them."""

LIMITS = {"keep_weights", "max_length"}
"""Options that say how the same is computed, or what is refused."""


def is_same(case, option):
    """Whether a case has this value of the option, by itself or by its other options."""
    return option_of(case, option) == OTHERS[option] or (option == "output_bias" and option_of(case, "bias") is False)


OPTIONS = [
    pytest.param(case, option, marks=pytest.mark.slow if "/" in case else ())
    for case in EVERY_CASE
    for option in inspect.signature(card(case).builder).parameters
    if option not in SIZES | LIMITS and not is_same(case, option)
]


def results(case, **given):
    """What comes out in training, of parameters that depend on their names alone, and the gradient of the inputs."""
    module = card(case).builder(**{**arguments(case), **given}).double().train()
    for name, parameter in module.named_parameters():
        generator = torch.Generator().manual_seed(sum(map(ord, name)))
        with torch.no_grad():
            parameter.copy_(0.7 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    inputs = [one.requires_grad_() for one in any_inputs(case, dtype=torch.float64)]
    torch.manual_seed(3)
    result = module(*inputs)
    log_prob = getattr(getattr(result, "weights", None), "log_prob", None)
    found = [one for one in (*tensors(result), log_prob) if one is not None and one.is_floating_point()]
    loss = sum((one * torch.linspace(0.5, 1.5, one.numel()).view(one.shape)).sum() for one in found)
    return [*found, *torch.autograd.grad(loss, inputs, allow_unused=True, materialize_grads=True)]


@pytest.mark.parametrize(("case", "option"), OPTIONS)
def test_an_option_has_an_effect_or_is_refused(case, option):
    before = results(case)
    try:
        after = results(case, **{option: OTHERS[option]})
    except ConfigError as error:
        assert option in str(error) or any(name in str(error) for name in arguments(case)), error  # noqa: PT017
        return
    assert [one.shape for one in before] != [one.shape for one in after] or any(
        not torch.allclose(one, other, rtol=1e-9, atol=1e-12) for one, other in zip(before, after)
    )
