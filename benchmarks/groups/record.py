"""Recording a model

Models of four layers (width 256, 8 heads, inner width 1024) on one text, inside of `foci.record(model, detach=True)`
against the same call without it; the weights are not asked for. The goal is at most 1.3 times the time of the model
alone, a ratio of 0.77: an encoder of torch on its fused inference path, the blocks of GPT-2 in plain PyTorch, and
BERT and Llama of transformers with fused attention. One attention at 4096 positions shows the memory, which is that of
queries and keys: the weights of its heads would take 537 MB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

import foci
from benchmarks.harness import FORWARD, Call, Case, call
from benchmarks.plain_gpt import Attention, Block, Sizes

GOAL = 0.77
DIM, HEADS, LAYERS = 256, 8, 4
Given = tuple[nn.Module, Tensor]


def cases(peer: str, quick: bool) -> Iterator[Case]:
    """Four models at 512 positions, and one layer at 4096."""
    length = 128 if quick else 512
    goal = None if quick else GOAL
    common: dict[str, Any] = {"against": "without recording", "measure": FORWARD, "ours": _recorded, "theirs": _alone}
    common |= {"goal": goal, "tolerance": 0.0}
    for name, build in (_of_transformers() if peer == "transformers" else _of_torch()).items():
        yield Case(name=f"{length} positions, {name}", inputs=partial(_inputs, build, length), **common)
    if peer == "torch":
        name, inputs = f"{8 * length} positions, one attention", partial(_inputs, _attention, 8 * length)
        yield Case(name=name, inputs=inputs, memory_limit=64.0, **common)


def _inputs(build: Callable[[], nn.Module], length: int) -> Given:
    torch.manual_seed(0)
    return build().eval(), torch.randn(1, length, DIM)


def _recorded(model: nn.Module, x: Tensor) -> Call:
    def recorded() -> Any:
        with foci.record(model, detach=True):
            return model(x)

    return call(FORWARD, recorded)


def _alone(model: nn.Module, x: Tensor) -> Call:
    return call(FORWARD, lambda: model(x))


def _of_torch() -> dict[str, Callable[[], nn.Module]]:
    layer = partial(nn.TransformerEncoderLayer, DIM, HEADS, 4 * DIM, batch_first=True)
    return {
        "nn.TransformerEncoder": lambda: nn.TransformerEncoder(layer(), LAYERS, enable_nested_tensor=False),
        "GPT-2's blocks": lambda: nn.Sequential(*(Block(Sizes(1, dim=DIM, heads=HEADS)) for _ in range(LAYERS))),
    }


def _attention() -> nn.Module:
    return Attention(Sizes(1, dim=DIM, heads=HEADS))


class _FromVectors(nn.Module):
    """A model of transformers that reads vectors, and gives its last states."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        states: Tensor = self.model(inputs_embeds=x).last_hidden_state
        return states


def _of_transformers() -> dict[str, Callable[[], nn.Module]]:
    import transformers

    sizes: dict[str, Any] = {
        "hidden_size": DIM,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "vocab_size": 101,
    }
    configs = {
        "BertModel, sdpa": transformers.BertConfig(**sizes, intermediate_size=4 * DIM),
        "LlamaModel, sdpa": transformers.LlamaConfig(**sizes, intermediate_size=2 * DIM, num_key_value_heads=2),
    }

    def build(config: Any) -> nn.Module:
        models: Any = transformers.AutoModel
        return _FromVectors(models.from_config(config))

    return {name: partial(build, config) for name, config in configs.items()}
