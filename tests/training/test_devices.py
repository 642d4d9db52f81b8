"""Where a model runs: in shards it is never whole on a process."""

import socket

import pytest
import torch

import foci
from foci.tasks.frame import config as configs
from foci.tasks.frame import train as skeleton
from foci.tasks.translate.task import Translate
from foci.training.devices import distribute, is_sharded
from foci.training.named_tensors import weights


@pytest.fixture
def alone_under_torchrun(monkeypatch):
    """The environment of the only process of a torchrun: a shard is whole there, all else is as with several."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {"TORCHELASTIC_RUN_ID": "test", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "RANK": 0}
    environment |= {"LOCAL_RANK": 0, "WORLD_SIZE": 1, "LOCAL_WORLD_SIZE": 1, "GROUP_RANK": 0, "GROUP_WORLD_SIZE": 1}
    for name, value in environment.items():
        monkeypatch.setenv(name, str(value))


@pytest.fixture
def seen(monkeypatch):
    """What the training skeleton does with a model that is to be sharded."""
    seen = {}

    def distributed(fabric, module, deferred=None):
        seen["made"] = [name for name, parameter in module.named_parameters() if not parameter.is_meta]
        distribute(fabric, module, deferred)
        seen["first"] = {name: value.clone() for name, value in weights(module)[0].items()}
        return module

    def tried(task, model, *others):
        seen["tried"] = is_sharded(model) and not any(parameter.is_meta for parameter in model.parameters())
        return trial(task, model, *others)

    trial = skeleton._try_longest_batch
    monkeypatch.setattr(skeleton, "distribute", distributed)
    monkeypatch.setattr(skeleton, "_try_longest_batch", tried)
    return seen


def test_in_shards_a_model_is_built_without_memory_and_tried_after_it_was_sharded(tmp_path, alone_under_torchrun, seen):
    settings = configs.put(Translate.Config.smallest, {"training.strategy": "fsdp", "training.max_steps": 1})
    messages = []
    foci.train("translate", settings, out=tmp_path / "run", log=messages.append)
    assert any(message.startswith("EncoderDecoder with ") for message in messages)
    assert not seen["made"]
    assert seen["tried"]
    task = Translate(configs.configure(Translate.Config, settings, "settings"))
    torch.manual_seed(task.config.training.seed)
    expected, _ = weights(task.model(task.assets(task.read(print), print)))
    assert expected.keys() == seen["first"].keys()
    assert all(torch.equal(expected[name], seen["first"][name]) for name in expected)

    settings = configs.put(settings, {"training.init_from": str(tmp_path / "run")})
    foci.train("translate", settings, out=tmp_path / "next", log=lambda text: None)
    taken = foci.load(tmp_path / "run").model.state_dict()
    assert all(torch.equal(taken[name], seen["first"][name]) for name in expected)
