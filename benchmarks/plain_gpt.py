"""GPT-2 in plain PyTorch, as the papers describe it: what a language model costs without any toolkit.

Pre-norm blocks of causal self-attention (one product for query, key and value) and a feed-forward network of four
times the width with GELU, learned positions, a final norm, the output tied to the embeddings; weights start normal with
deviation 0.02, those that end a residual branch smaller by sqrt(2 · layers). AdamW with decoupled decay of matrices,
cosine schedule with warm-up, gradients clipped at 1.

Papers: Improving Language Understanding by Generative Pre-Training (Radford et al., 2018), section 4.1; Language
    Models are Unsupervised Multitask Learners (Radford et al., 2019), section 2.3
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Sizes:
    """The defaults are nanoGPT's configuration for a CPU."""

    vocabulary: int
    context: int = 64
    dim: int = 128
    heads: int = 4
    layers: int = 4


class Attention(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.heads = sizes.heads
        self.project = nn.Linear(sizes.dim, 3 * sizes.dim)
        self.join = nn.Linear(sizes.dim, sizes.dim)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, dim = x.shape
        query, key, value = (
            part.view(batch, length, self.heads, dim // self.heads).transpose(1, 2)
            for part in self.project(x).split(dim, dim=2)
        )
        read = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        joined: Tensor = self.join(read.transpose(1, 2).contiguous().view(batch, length, dim))
        return joined


class Block(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(sizes.dim)
        self.attention = Attention(sizes)
        self.feed_forward_norm = nn.LayerNorm(sizes.dim)
        self.inner = nn.Linear(sizes.dim, 4 * sizes.dim)
        self.outer = nn.Linear(4 * sizes.dim, sizes.dim)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        added: Tensor = x + self.outer(F.gelu(self.inner(self.feed_forward_norm(x))))
        return added


class PlainGPT(nn.Module):
    """Logits of the next token at every position."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.tokens = nn.Embedding(sizes.vocabulary, sizes.dim)
        self.positions = nn.Embedding(sizes.context, sizes.dim)
        self.blocks = nn.ModuleList(Block(sizes) for _ in range(sizes.layers))
        self.norm = nn.LayerNorm(sizes.dim)
        self.output = nn.Linear(sizes.dim, sizes.vocabulary, bias=False)
        self.output.weight = self.tokens.weight
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                ends = name.endswith(("join.weight", "outer.weight"))
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * sizes.layers) if ends else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.output(self.norm(x))
        return logits


def optimizer(model: nn.Module, rate: float = 1e-3) -> torch.optim.AdamW:
    """AdamW that shrinks matrices only, with the betas of the CPU configuration."""
    matrices = [one for one in model.parameters() if one.dim() >= 2]
    vectors = [one for one in model.parameters() if one.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.99))


def rate_at(step: int, steps: int, *, highest: float = 1e-3, lowest: float = 1e-4, warmup: int = 100) -> float:
    """The learning rate of a step, counted from 0: warm-up, then a cosine."""
    if step < warmup:
        return highest * (step + 1) / (warmup + 1)
    done = (step - warmup) / max(1, steps - warmup)
    return lowest + 0.5 * (1 + math.cos(math.pi * min(done, 1.0))) * (highest - lowest)


def train_step(model: PlainGPT, adam: torch.optim.AdamW, inputs: Tensor, targets: Tensor, half: bool = False) -> Tensor:
    """One update, the forward pass in bfloat16 where asked for; returns the loss per token."""
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        logits = model(inputs)
        loss = F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    adam.step()
    adam.zero_grad(set_to_none=True)
    return loss.detach()
