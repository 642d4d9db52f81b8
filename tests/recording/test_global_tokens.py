"""PEGASUS-X's global tokens and blocks against what its modules return and read, and edits of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from foci.recording import edit, record

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.slow

B, H, G, SIZE, N = 2, 2, 3, 4, 12
PATH = "encoder.layers.0.self_attn"


def pegasus_x() -> Any:
    torch.manual_seed(0)
    sizes = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 1, "vocab_size": 43, "num_global_tokens": G}
    heads = {"encoder_attention_heads": H, "decoder_attention_heads": H, "encoder_ffn_dim": 17, "decoder_ffn_dim": 17}
    config = transformers.PegasusXConfig(**sizes, **heads, block_size=SIZE, init_std=0.5)
    return transformers.PegasusXModel(config).eval()


def inputs() -> dict[str, Tensor]:
    mask = torch.ones(B, N, dtype=torch.long)
    mask[1, -5:] = 0
    return {
        "input_ids": torch.arange(3, 3 + B * N).reshape(B, N),
        "attention_mask": mask,
        "decoder_input_ids": torch.ones(B, 2, dtype=torch.long),
    }


def run(model: Any) -> tuple[Tensor, Tensor, tuple[Any, ...]]:
    """Return the answer, the states that the attention was given, global ones first, and what it returned."""
    seen = []

    def saw(module: Any, args: Any, kwargs: Any, output: Any) -> None:
        given = {**dict(zip(("token_hidden_states", "global_hidden_states"), args)), **kwargs}
        seen.append((torch.cat([given["global_hidden_states"], given["token_hidden_states"]], dim=1), output))

    hook = model.get_submodule(PATH).register_forward_hook(saw, with_kwargs=True)
    answer = model(**inputs())[0]
    hook.remove()
    return answer, *seen[0]


def read(module: Any, hidden: Tensor, weights: Tensor) -> Tensor:
    values = module.v_proj(hidden).unflatten(-1, (H, -1)).transpose(1, 2)
    return module.out_proj((weights @ values).transpose(1, 2).flatten(2))


@torch.no_grad()
def test_the_rows_are_what_the_model_reads_with():
    model = pegasus_x()
    want, _, _ = run(model)
    with record(model) as tape:
        answer, hidden, (tokens, of_global, theirs) = run(model)
    assert torch.equal(answer, want)
    assert not tape.missed
    assert tape[PATH].shape == (B, H, G + N, G + N)
    assert tape["encoder.layers.1.self_attn"].shape == (B, H, G + N + SIZE, G + N + SIZE)  # half a block on each side
    dense = tape[PATH].dense()
    assert torch.allclose(dense[:, :, :G], theirs["global"], atol=2e-5)
    for block in range(N // SIZE):
        rows = slice(G + block * SIZE, G + (block + 1) * SIZE)
        of_block = torch.cat([dense[:, :, rows, :G], dense[:, :, rows, rows]], dim=-1)
        assert torch.allclose(of_block, theirs["local"][:, :, block], atol=2e-5)
        assert torch.allclose(of_block.sum(dim=-1), torch.ones(()))
    assert torch.allclose(read(model.get_submodule(PATH), hidden, dense), torch.cat([of_global, tokens], 1), atol=1e-5)


@torch.no_grad()
def test_edited_weights_are_read():
    model = pegasus_x()
    with record(model) as tape:
        want, _, _ = run(model)
    plain, first = tape[PATH].dense(), torch.tensor([True, False]).view(-1, 1, 1)
    near = torch.arange(N).div(SIZE, rounding_mode="floor")
    opened = torch.ones(G + N, G + N, dtype=torch.bool)
    opened[G:, G:] = near.unsqueeze(1) == near
    opened = opened & torch.nn.functional.pad(inputs()["attention_mask"].bool(), (G, 0), value=True)[:, None, None]
    blocked = plain.clone()
    blocked[:, :, [0, 5], 6] = 0.0
    blocked[:, :, [0, 5]] /= blocked[:, :, [0, 5]].sum(dim=-1, keepdim=True)
    for change, weights in (
        (lambda e: e.knock_out(PATH, 0), plain * ~first),
        (lambda e: e.uniform(PATH), (opened / opened.sum(-1, keepdim=True)).expand(plain.shape)),
        (lambda e: e.block(PATH, [0, 5], 6), blocked),
        (lambda e: e.weights(PATH, torch.square), plain.square()),
    ):
        with edit(model) as e, record(model) as edited:
            change(e)
            answer, hidden, (tokens, of_global, _) = run(model)
        assert torch.allclose(edited[PATH].dense(), weights, atol=1e-6)
        got = torch.cat([of_global, tokens], dim=1)
        assert torch.allclose(got, read(model.get_submodule(PATH), hidden, weights), atol=1e-5)
        assert not torch.allclose(answer, want, atol=1e-3)
    with edit(model) as e:
        e.scale("*", None, 1.0)
        assert torch.equal(run(model)[0], want)
