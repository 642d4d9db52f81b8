"""What a model of torch's own layers and of one's own code attends to, without changing it or its results."""

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import foci

WORDS = ["the", "old", "man", "reads", "the", "paper", "in", "his", "garden"]


class OwnLayer(nn.Module):
    """Attention as people write it, by torch's function."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads, self.project = heads, nn.Linear(dim, 3 * dim)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.project(x).chunk(3, -1)
        )
        return x + F.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2).flatten(2)


class Model(nn.Module):
    def __init__(self, dim: int = 32) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(dim, nhead=4, dim_feedforward=64, batch_first=True)
        self.embed = nn.Embedding(100, dim)
        self.encoder = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
        self.own = OwnLayer(dim, heads=2)

    def forward(self, ids: Tensor) -> Tensor:
        output: Tensor = self.own(self.encoder(self.embed(ids)))
        return output


def main() -> None:
    torch.manual_seed(0)
    model, ids = Model().eval(), torch.randint(100, (1, len(WORDS)))
    with torch.no_grad():
        before = model(ids)
        with foci.record(model) as tape:
            recorded = model(ids)
    assert torch.equal(recorded, before)
    assert list(tape) == ["encoder.layers.0.self_attn", "encoder.layers.1.self_attn", "own"]
    own = tape["own"]
    torch.testing.assert_close(own.dense().sum(dim=-1), torch.ones(1, 2, len(WORDS)))
    assert not own.mass(~foci.masks.causal(len(WORDS), len(WORDS))).any()  # nothing is read of the future
    print(own, "entropy of the heads:", own.entropy().mean(dim=(0, 2)))
    trace = foci.Trace.from_tape(tape, {"text": WORDS})
    page = trace.save_html(Path("attention.html"))
    assert page.stat().st_size > 10_000

    model.train()  # weights that were recorded with gradients are part of the graph
    with foci.record(model) as tape:
        model(ids)
    tape["own"].entropy().mean().backward()
    gradient = model.own.project.weight.grad
    assert gradient is not None
    assert gradient.abs().sum() > 0


if __name__ == "__main__":
    main()
