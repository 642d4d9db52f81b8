"""Parts of one's own in foci.Attention: a score, a normalizer, a focus and a stage, each one function or module."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import foci


class Distance(nn.Module):
    """A score: near vectors fit, by a learned temperature."""

    def __init__(self) -> None:
        super().__init__()
        self.log_scale = nn.Parameter(torch.zeros(()))

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return -self.log_scale.exp() * torch.cdist(query, key).square()


def softmax_of_the_best_two(scores: Tensor, mask: Tensor | None) -> Tensor:
    """A normalizer: all but the two best positions have weight 0."""
    scores = scores if mask is None else scores.masked_fill(~mask, -torch.inf)
    second = scores.topk(2, dim=-1).values[..., -1:]
    return scores.masked_fill(scores < second, -torch.inf).softmax(dim=-1)


def not_itself(query: Tensor, key: Tensor) -> Tensor:
    """A focus: a position does not read itself."""
    return ~torch.eye(query.shape[1], key.shape[1], dtype=torch.bool).unsqueeze(0)


class Gate(nn.Module):
    """A stage after reading: the query says how much it takes of what was read."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.layer = nn.Linear(dim, 1)

    def forward(self, query: Tensor, attended: foci.AttentionOutput) -> foci.AttentionOutput:
        return attended._replace(output=torch.sigmoid(self.layer(query)) * attended.output)


def noisy_points(rows: int, length: int, dim: int) -> tuple[Tensor, Tensor]:
    """Measurements of one of two centers, and the centers: neighbors say which it is."""
    centers = torch.randn(rows, 2, dim) * 2
    clean = centers.repeat_interleave(length // 2, dim=1)
    return clean + torch.randn(rows, length, dim) * 0.5, clean


def main() -> None:
    torch.manual_seed(0)
    dim, length = 3, 8
    attention = foci.Attention(
        dim, dim, score=Distance(), normalize=softmax_of_the_best_two, focus=not_itself, after=Gate(dim)
    )
    print(attention)
    optimizer = torch.optim.Adam(attention.parameters(), 0.05)
    losses = []
    for _ in range(150):
        points, clean = noisy_points(16, length, dim)
        loss = F.mse_loss((points + attention(points, points).output) / 2, clean)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(f"error {sum(losses[:10]) / 10:.3f}, trained {sum(losses[-10:]) / 10:.3f}")
    assert sum(losses[-10:]) < 0.8 * sum(losses[:10])

    valid = foci.masks.lengths(torch.tensor([length, 5]), length)
    points, _ = noisy_points(2, length, dim)
    weights = attention(points, points, mask=foci.masks.keys(valid)).weights.dense()
    assert not weights[1, :, 5:].any()
    assert not weights.diagonal(dim1=1, dim2=2).any()
    assert ((weights > 0).sum(dim=-1) <= 2).all()


if __name__ == "__main__":
    main()
