"""BigBird's blocks against what its modules return and read, and edits of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from foci.recording import edit, record

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.slow

B, H, SIZE, COUNT = 2, 2, 3, 11
L = SIZE * COUNT
PATH = "encoder.layer.1.attention.self"


def bigbird() -> Any:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": H, "intermediate_size": 17}
    config = transformers.BigBirdConfig(
        **sizes, vocab_size=71, block_size=SIZE, num_random_blocks=1, max_position_embeddings=L, initializer_range=0.5,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return transformers.BigBirdModel(config).eval()


def inputs() -> dict[str, Tensor]:
    mask = torch.ones(B, L, dtype=torch.long)
    mask[1, -5:] = 0
    return {"input_ids": torch.arange(3, 3 + B * L).reshape(B, L), "attention_mask": mask}


def run(model: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Return the answer, and what the attention was given and returned."""
    seen = []
    hook = model.get_submodule(PATH).register_forward_hook(lambda module, args, output: seen.append((args, output)))
    answer = model(**inputs())[0]
    hook.remove()
    return answer, seen[0][0][0], seen[0][1][0]


def read(module: Any, hidden: Tensor, weights: Tensor) -> Tensor:
    values = module.value(hidden).unflatten(-1, (H, -1)).transpose(1, 2)
    return (weights @ values).transpose(1, 2).flatten(2)


@torch.no_grad()
@pytest.mark.parametrize("trains", [True, False])
def test_the_rows_are_what_the_model_reads_with(trains):
    """Evaluated, all random blocks are the first block: the library returns the weights of one of them, not the sum."""
    model, mask = bigbird().train(trains), inputs()["attention_mask"].bool()
    want, _, _ = run(model)
    with record(model) as tape:
        answer, hidden, output = run(model)
    assert torch.equal(answer, want)
    assert list(tape) == ["encoder.layer.0.attention.self", PATH]
    assert not tape.missed
    dense = tape[PATH].dense()
    assert torch.allclose(read(model.get_submodule(PATH), hidden, dense), output, atol=1e-5)
    assert torch.allclose(dense.sum(dim=-1), mask[:, None].float().expand(B, H, L))
    theirs = model(**inputs(), output_attentions=True).attentions[1] * mask[:, None, :, None]
    others = slice(0, L) if trains else slice(SIZE, L)
    assert torch.allclose(dense[..., others], theirs[..., others], atol=2e-5)
    assert torch.allclose(dense, theirs, atol=2e-5) == trains


@torch.no_grad()
@pytest.mark.parametrize("trains", [True, False])
def test_edited_blocks_are_read(trains):
    model = bigbird().train(trains)
    with record(model) as tape:
        want, _, _ = run(model)
    plain, first = tape[PATH].dense(), torch.tensor([True, False]).view(-1, 1, 1)
    closed = torch.zeros(L, L, dtype=torch.bool)
    closed[[0, 7], 4] = True
    blocked = plain.masked_fill(closed, 0.0)
    blocked = torch.where(closed.any(1, keepdim=True), blocked / blocked.sum(-1, keepdim=True).clamp_min(1e-9), plain)
    opened = plain > 1e-20
    for change, weights in (
        (lambda e: e.knock_out(PATH, 0), plain * ~first),
        (lambda e: e.block(PATH, [0, 7], 4), blocked),
        (lambda e: e.uniform(PATH), opened / opened.sum(-1, keepdim=True).clamp_min(1)),
        (lambda e: e.weights(PATH, torch.square), plain.square()),
    ):
        with edit(model) as e, record(model) as edited:
            change(e)
            answer, hidden, output = run(model)
        assert torch.allclose(edited[PATH].dense(), weights, atol=1e-6)
        assert torch.allclose(output, read(model.get_submodule(PATH), hidden, weights), atol=1e-5)
        assert not torch.allclose(answer, want, atol=1e-3)
    with edit(model) as e:
        e.scale("*", None, 1.0)
        assert torch.equal(run(model)[0], want)
    assert torch.equal(run(model)[0], want)


def test_a_blocked_key_is_a_masked_word():
    model, given = bigbird().train(), inputs()
    given["attention_mask"][:, 10] = 0
    want = model(**given)[0]
    embedded = model.get_input_embeddings()(inputs()["input_ids"]).detach().requires_grad_()
    with edit(model) as e:
        e.block("*", keys=10)
        e.block("*", queries=10)
        got = model(inputs_embeds=embedded * 1.0, attention_mask=inputs()["attention_mask"])[0]
    others = given["attention_mask"].bool()
    assert torch.allclose(got[others], want[others], atol=1e-4)
    (got[others] * torch.randn_like(got[others])).sum().backward()
    assert embedded.grad[:, 10].abs().max() < 1e-5 * embedded.grad[:, 9].abs().max()
