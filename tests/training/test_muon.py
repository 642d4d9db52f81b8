"""Muon: the singular vectors it steps along, which parameters it steps, and its state."""

import pytest
import torch
from flat_models import transformer_language_model
from torch import nn

from foci.errors import ConfigError
from foci.training.muon import MuonWithAdamW
from foci.training.named_tensors import optimizer_tensors, put_optimizer_tensors
from foci.training.optim import make_optimizer, set_rate
from foci.training.options import TrainingOptions


@pytest.mark.parametrize("shape", [(5, 11), (11, 5), (7, 7)])
def test_updates_have_the_singular_vectors_of_the_gradient_and_values_near_one(shape):
    torch.manual_seed(3)
    weight = nn.Parameter(torch.zeros(shape))
    weight.grad = torch.randn(shape)
    group = {"params": [weight], "kind": "muon", "weight_decay": 0.0}
    MuonWithAdamW([group], lr=1.0, momentum=0.9, betas=(0.8, 0.95), eps=1e-8, fused=False).step()
    update = -weight.detach() / (0.2 * max(shape) ** 0.5)
    u, _, v = torch.linalg.svd(weight.grad, full_matrices=False)
    inside = u.T @ update @ v.T  # diagonal where the singular vectors are the same, to the rounding of bfloat16
    torch.testing.assert_close(inside, torch.diag(inside.diagonal()), atol=0.03, rtol=0)
    assert ((inside.diagonal() > 0.5) & (inside.diagonal() < 1.3)).all()
    torch.testing.assert_close(u @ inside @ v, update, atol=0.03, rtol=0)


def orthogonalized(matrix):
    """The Newton-Schulz steps of Jordan et al. in float64."""
    x = matrix / matrix.norm()
    for _ in range(5):
        square = x @ x.T
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return x


def test_a_step_by_the_equations():
    torch.manual_seed(3)
    weight = nn.Parameter(torch.randn(4, 6, dtype=torch.float64))
    vector = nn.Parameter(torch.randn(3, dtype=torch.float64))
    groups = [
        {"params": [weight], "kind": "muon", "weight_decay": 0.1},
        {"params": [vector], "kind": "adam", "weight_decay": 0.0},
    ]
    optimizer = MuonWithAdamW(groups, lr=0.01, momentum=0.9, betas=(0.8, 0.95), eps=1e-8, fused=True)
    expected, momentum = weight.detach().clone(), torch.zeros(4, 6, dtype=torch.float64)
    twin = nn.Parameter(vector.detach().clone())
    adam = torch.optim.AdamW([twin], lr=0.01, betas=(0.8, 0.95), eps=1e-8, weight_decay=0.0)
    for _ in range(3):
        gradient = torch.randn(4, 6, dtype=torch.float64)
        weight.grad = gradient.clone()
        vector.grad = torch.randn(3, dtype=torch.float64)
        twin.grad = vector.grad.clone()
        optimizer.step()
        adam.step()
        momentum = 0.9 * momentum + gradient
        update = orthogonalized(gradient + 0.9 * momentum)
        expected = expected * (1 - 0.01 * 0.1) - 0.01 * 0.2 * 6**0.5 * update
        # torch orthogonalizes in bfloat16.
        torch.testing.assert_close(weight.detach(), expected, atol=3e-4, rtol=0)
        torch.testing.assert_close(vector.detach(), twin.detach())


def model():
    torch.manual_seed(5)
    return transformer_language_model(11, 7, model_dim=8, num_heads=2, hidden_dim=12, num_layers=1, rms_norm=True)


def options(**changes):
    return TrainingOptions(max_steps=9, optimizer="muon", weight_decay=0.1, **changes)


def stepped(network, optimizer, steps, rate=0.01):
    for step in range(steps):
        generator = torch.Generator().manual_seed(step)
        tokens = torch.randint(3, 11, (2, 7), generator=generator)
        optimizer.zero_grad()
        network(tokens[:, :-1]).logits.log_softmax(-1)[..., 5].sum().neg().backward()
        set_rate(optimizer, rate)
        optimizer.step()


def test_matrices_of_linear_layers_only_and_shares_of_the_rate():
    network = model()
    optimizer = make_optimizer(network, options(lr_multipliers={"output_layer.weight": 0.5}))
    names = {parameter: name for name, parameter in network.named_parameters()}
    kinds = {
        names[one]: (group["kind"], group["weight_decay"], group["share"])
        for group in optimizer.param_groups
        for one in group["params"]
    }
    assert kinds.keys() == dict(network.named_parameters()).keys()
    assert kinds["decoder.embedding.table.weight"] == ("adam", 0.1, 1.0)
    assert kinds["decoder.output.weight"] == ("adam", 0.1, 1.0)
    assert kinds["decoder.norm.weight"] == ("adam", 0.0, 1.0)
    assert kinds["decoder.layers.0.self_attention.output_layer.weight"] == ("muon", 0.1, 0.5)
    assert kinds["decoder.layers.0.feed_forward.inner_layer.weight"] == ("muon", 0.1, 1.0)


def test_a_saved_state_goes_on_bit_for_bit(tmp_path):
    network = model()
    optimizer = make_optimizer(network, options())
    stepped(network, optimizer, 2)
    other = model()
    other.load_state_dict(network.state_dict())
    resumed = make_optimizer(other, options())
    saved = {name: value.clone() for name, value in optimizer_tensors(network, optimizer).items()}
    put_optimizer_tensors(other, resumed, saved, tmp_path)
    stepped(network, optimizer, 3, 0.02)
    stepped(other, resumed, 3, 0.02)
    for name, value in network.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]), name


def test_what_is_no_matrix_is_refused():
    group = {"params": [nn.Parameter(torch.zeros(3))], "kind": "muon", "weight_decay": 0.0}
    with pytest.raises(ValueError, match="Muon only supports 2D parameters"):
        MuonWithAdamW([group], lr=0.1, momentum=0.9, betas=(0.8, 0.95), eps=1e-8, fused=True)


def test_sharded_parameters_are_refused():
    sharded = nn.Parameter(torch.zeros(3, 3))
    sharded.full_tensor = None
    group = {"params": [sharded], "kind": "muon", "weight_decay": 0.0}
    with pytest.raises(ConfigError, match="the parameters are sharded, expected whole matrices"):
        MuonWithAdamW([group], lr=0.1, momentum=0.9, betas=(0.8, 0.95), eps=1e-8, fused=True)
