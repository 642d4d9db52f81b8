"""Models built without memory: their weights are those of models built at once, to the bit."""

import copy

import pytest
import torch
from torch import nn

from foci.errors import TrainingError
from foci.tasks import TASKS
from foci.tasks.frame import config as configs
from foci.tasks.frame.task import find, silent
from foci.training.deferred import Deferred

MODELS = [(name, {}) for name in TASKS]
MODELS += [("translate", {"model": {"kind": kind}}) for kind in ("rnn", "conv", "transformer")]
MODELS += [
    ("detect", {"model.attention.kind": "plain"}),
    ("detect", {"model.attention": {"kind": "conditional", "anchors": "learned"}}),
]


def tensors(model):
    return dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers(remove_duplicate=False))


def ties(model):
    return [[name for name, other in tensors(model).items() if other is one] for one in tensors(model).values()]


def assert_same(model, expected):
    found, values = tensors(model), tensors(expected)
    assert found.keys() == values.keys()
    for name, value in values.items():
        assert type(found[name]) is type(value), name
        assert found[name].requires_grad == value.requires_grad, name
        assert torch.equal(found[name], value), name
    assert ties(model) == ties(expected)


@pytest.mark.parametrize(("name", "changes"), MODELS)
def test_weights_are_those_of_the_model_built_at_once(name, changes):
    kind = find(name)
    task = kind(configs.configure(kind.Config, configs.put(kind.Config.smallest, changes), "settings"))
    assets = task.assets(task.read(silent), silent)
    torch.manual_seed(3)
    expected = task.model(assets)
    drawn = torch.rand(2)
    torch.manual_seed(3)
    with Deferred() as deferred:
        model = task.model(assets)
    assert torch.equal(torch.rand(2), drawn)  # what is drawn afterwards is the same too
    assert all(parameter.is_meta for parameter in model.parameters())
    deferred.fill(model)
    assert_same(model, expected)


class Odd(nn.Module):
    """Weights made in all the ways that there are; the generator is not torch's own."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(5)
        self.first = nn.Parameter(torch.empty(3, 5).normal_(generator=generator))
        self.second = copy.deepcopy(self.first)
        self.third = nn.Parameter(torch.empty(7, 3).uniform_(generator=generator), requires_grad=False)
        self.fourth = nn.Parameter(self.third.detach() @ self.first.detach() + torch.ones(5))
        self.tables = nn.ModuleList(nn.Embedding(5, 3, padding_idx=2) for _ in range(2))
        self.tied = self.tables[0]
        self.register_buffer("known", torch.tensor([2, 3]))
        self.register_buffer("made", torch.empty(3, dtype=torch.long).fill_(7), persistent=False)
        self.register_buffer("none", None)
        with torch.no_grad():
            self.third[torch.tensor([True, False] * 3 + [True])] = torch.arange(12.0).view(4, 3)
            self.third.data.t()[1, 2:4].mul_(3).clamp_(max=20)
            torch.add(self.first, 1, out=self.second)
            torch._foreach_mul_([self.first, self.second], 2.0)
            self.tables[1].weight.copy_(torch.linalg.qr(torch.empty(5, 3).normal_())[0] + self.tables[1].weight)


def test_every_way_of_making_weights():
    torch.manual_seed(3)
    expected = Odd()
    torch.manual_seed(3)
    with Deferred() as deferred:
        model = Odd()
    deferred.fill(model)
    assert_same(model, expected)


def test_parts_are_filled_alone_and_in_any_order():
    torch.manual_seed(3)
    expected = Odd()
    torch.manual_seed(3)
    with Deferred() as deferred:
        model = Odd()
    torch.manual_seed(11)
    deferred.fill(model.tables[1])
    assert model.first.is_meta
    assert model.tied.weight.is_meta
    torch.testing.assert_close(model.tables[1].weight, expected.tables[1].weight, rtol=0, atol=0)
    state = torch.get_rng_state()
    deferred.fill(model)
    assert torch.equal(torch.get_rng_state(), state)
    assert_same(model, expected)


def test_weights_without_values_are_an_error():
    with Deferred() as deferred:
        model = nn.Module()
        model.weight = nn.Parameter(torch.empty(3, 5))
        nn.init.orthogonal_(model.weight)
    with pytest.raises(TrainingError, match=r"shape \(3, 5\) has no initial values"):
        deferred.fill(model)
