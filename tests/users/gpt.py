"""A language model with a cache: it learns texts that repeat their first four tokens, and continues one."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import foci

WORDS, PERIOD, LENGTH = 11, 4, 20
Cache = foci.KeyValueCache | None


class Block(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.attention = foci.MultiHeadAttention(dim, 4, causal=True, rotary=True, qk_norm="rms", bias=False)
        self.norm, self.other_norm = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.SiLU(), nn.Linear(2 * dim, dim))

    def forward(self, x: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
        read, _, cache = self.attention(self.norm(x), self.norm(x), state=cache)
        x = x + read
        return x + self.mlp(self.other_norm(x)), cache


class GPT(nn.Module):
    def __init__(self, dim: int = 32, layers: int = 2) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, dim)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(layers))
        self.output = nn.Linear(dim, WORDS)

    def forward(self, tokens: Tensor, caches: list[Cache] | None = None) -> tuple[Tensor, list[Cache]]:
        x, after = self.embed(tokens), []
        for number, block in enumerate(self.blocks):
            x, cache = block(x, None if caches is None else caches[number])
            after.append(cache)
        return self.output(x), after

    def empty_caches(self, rows: int) -> list[Cache]:
        return [block.attention.empty_cache(rows) for block in self.blocks if isinstance(block, Block)]

    @torch.no_grad()
    def continue_text(self, tokens: Tensor, steps: int) -> Tensor:
        logits, caches = self(tokens, self.empty_caches(len(tokens)))
        for _ in range(steps):
            new = logits[:, -1:].argmax(dim=-1)
            tokens = torch.cat([tokens, new], dim=1)
            logits, caches = self(new, caches)
        return tokens


def texts(rows: int) -> Tensor:
    return torch.randint(WORDS, (rows, PERIOD)).repeat(1, LENGTH // PERIOD)


def main() -> None:
    torch.manual_seed(0)
    model = GPT()
    optimizer = torch.optim.AdamW(model.parameters(), 5e-3)
    for _ in range(150):
        tokens = texts(32)
        logits, _ = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    tokens = texts(16)
    continued = model.eval().continue_text(tokens[:, : 2 * PERIOD], LENGTH - 2 * PERIOD)
    right = (continued == tokens).float().mean()
    print(f"continued correctly: {right:.3f}")
    assert right > 0.95


if __name__ == "__main__":
    main()
