"""Attention functions that are registered with transformers are read from their arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from foci.recording import record
from foci.recording.registered import of_registered
from foci.recording.torch_calls import Copies


@pytest.mark.slow
@torch.no_grad()
def test_a_kernel_that_is_registered_is_read_from_its_arguments():
    """As flash-attn: nothing of torch is called that could be seen."""
    transformers = pytest.importorskip("transformers")
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    def kernel(module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **options: Any) -> Any:
        groups = query.shape[1] // key.shape[1]
        key, value = (tensor.repeat_interleave(groups, 1).numpy() for tensor in (key, value))
        scores = query.numpy() @ key.swapaxes(2, 3) * options["scaling"]
        powers = np.exp(np.where(attention_mask.numpy(), scores, -np.inf))
        output = (powers / powers.sum(-1, keepdims=True)) @ value
        return torch.from_numpy(output).transpose(1, 2).contiguous(), None

    AttentionInterface.register("hidden_kernel", kernel)
    AttentionMaskInterface.register(
        "hidden_kernel", lambda **options: sdpa_mask(**options | {"allow_is_causal_skip": False})
    )
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = transformers.LlamaConfig(vocab_size=31, intermediate_size=17, initializer_range=0.5, **sizes)
    model, ids = transformers.LlamaModel(config).eval(), torch.arange(11).unsqueeze(0)
    with record(model) as want:
        model(ids)
    model.set_attn_implementation("hidden_kernel")
    with record(model) as tape:
        model(ids)
    assert list(tape) == list(want) == ["layers.0.self_attn", "layers.1.self_attn"]
    for path in want:
        assert torch.allclose(tape[path].dense(), want[path].dense(), atol=2e-5)
    assert AttentionInterface._global_mapping["hidden_kernel"] is kernel


def test_options_of_kernels():
    query, key = torch.randn(2, 4, 3, 5), torch.randn(2, 2, 7, 5)
    padding = torch.arange(7) >= torch.tensor([0, 2]).unsqueeze(-1)
    sink = torch.randn(4)
    more = {"scaling": 0.3, "is_causal": True, "sliding_window": 3, "softcap": 2.0, "s_aux": sink}
    weights = of_registered(Copies(), None, query, key, key, padding, **more)
    scores = 2.0 * torch.tanh(0.3 * query @ key.repeat_interleave(2, dim=1).mT / 2.0)
    distance = torch.arange(7) - torch.arange(4, 7).unsqueeze(-1)
    allowed = (distance <= 0) & (distance > -3) & padding[:, None, None, :]
    scores = torch.cat([scores.masked_fill(~allowed, -torch.inf), sink[:, None, None].expand(2, 4, 3, 1)], dim=-1)
    assert torch.allclose(weights.dense(), scores.softmax(-1)[..., :-1], atol=1e-6)
