"""Relevance of runs beside loops over the same model, and the modules of attentions."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import foci
from foci.recording import record
from foci.tasks.frame import config as configs
from foci.tasks.frame.probing.runs import traces_with_relevance
from foci.tasks.frame.probing.traces import _maps, _paths_of
from foci.tasks.translate.task import Translate

BLOCKS = {"model_dim": 12, "hidden_dim": 17, "num_heads": 3, "num_layers": 2}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A translator that is a Transformer of two layers."""
    folder = tmp_path_factory.mktemp("relevance") / "run"
    smallest = {name: one for name, one in Translate.Config.smallest.items() if not name.startswith("model")}
    blocks = {"kind": "transformer", "encoder": BLOCKS, "decoder": BLOCKS}
    tables = configs.put({**smallest, "model": blocks}, {"training.max_steps": 3, "training.eval_every": 3})
    foci.train("translate", tables, out=folder, log=lambda text: None)
    return foci.load(folder)


def relevant(run, method):
    (trace,) = traces_with_relevance(run, run.task.examples(run.held_out(), 1), method)
    return trace


@pytest.mark.parametrize("method", ["gradient", "chefer", "norms", "value_zeroing"])
def test_every_relevance_is_there_for_a_run(run, method):
    trace = relevant(run, method)
    assert len(trace.attentions) == 6
    for one in trace.relevance(method).attentions.values():
        total = one.dense().sum(axis=-1)
        assert np.all(np.isclose(total, 1, atol=1e-4) | (total == 0))
    assert ("explained" in trace.metadata) == (method in ("gradient", "chefer"))


def test_the_gradient_is_that_of_the_answer(run):
    inputs = run.task.examples(run.held_out(), 1)
    trace = relevant(run, "gradient")
    one = run.task.traced_pass(run.model, run.assets, run.task.normal(inputs[0]))
    with record(run.model, gradients=True) as tape:
        logs = run.model(*one.inputs).logits.log_softmax(-1)
    logs.max(dim=-1).values.sum().backward()
    size = len(trace.axes["source"])
    path = [path for path in tape.paths if path.startswith("decoder") and tape[path].shape[-1] == size][-1]
    expected = (tape[path].dense() * tape.gradient(path))[0].clamp_min(0).mean(dim=0).detach()
    found = [one for name, one in trace.attentions.items() if name.endswith("cross")][-1]
    assert found.extras["gradient"] == pytest.approx(expected.numpy(), rel=1e-3, abs=1e-7)


def test_nothing_of_it_stays_on_the_model(run):
    relevant(run, "chefer")
    assert all(one.grad is None for one in run.model.parameters())


def test_modules_are_found_by_their_weights_in_any_order(run):
    (given,) = run.task.examples(run.held_out(), 1)
    with torch.no_grad():
        one = run.task.traced_pass(run.model, run.assets, run.task.normal(given))
        with record(run.model, detach=True) as tape:
            run.model(*one.inputs)
    turned = replace(one.trace, attentions=dict(reversed(one.trace.attentions.items())))
    found, others = _paths_of(_maps(one._replace(trace=turned)), tape)
    kinds = {"self": "self_attention", "cross": "cross_attention"}
    parts = {name: name.split(".") for name in turned.attentions}
    assert found == {name: f"{side}.layers.{layer}.{kinds[kind]}" for name, (side, layer, kind) in parts.items()}
    assert others == ()
