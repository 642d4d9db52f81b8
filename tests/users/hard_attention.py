"""Hard attention by REINFORCE: each step samples one position, and learns to read digits in reverse order."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import foci

DIGITS, LENGTH = 10, 4


class Reader(nn.Module):
    """It sees the digit at the position that it samples, and nothing else."""

    def __init__(self, dim: int = 32) -> None:
        super().__init__()
        self.digits = nn.Embedding(DIGITS, dim)
        self.places, self.steps = nn.Embedding(LENGTH, dim), nn.Embedding(LENGTH, dim)
        self.attention = foci.build("hard", query_dim=dim, key_dim=dim, sharpening=0.1)  # at first it samples widely
        self.output = nn.Linear(dim, DIGITS)

    def forward(self, digits: Tensor) -> tuple[Tensor, foci.Weights]:
        rows, number = len(digits), torch.arange(LENGTH)
        query, key = self.steps(number).expand(rows, -1, -1), self.places(number).expand(rows, -1, -1)
        seen, weights, _ = self.attention(query, key, self.digits(digits))
        return self.output(seen), weights


def main() -> None:
    torch.manual_seed(0)
    model = Reader()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    baseline: Tensor | float = 0.0
    for _ in range(300):
        digits = torch.randint(DIGITS, (64, LENGTH))
        scores, weights = model(digits)
        log_likelihood = -F.cross_entropy(scores.mT, digits.flip(1), reduction="none")
        assert weights.log_prob is not None
        surrogate, baseline = foci.functional.sample.reinforce(
            weights.log_prob, log_likelihood, baseline, entropy=weights.entropy(), entropy_weight=0.1
        )
        loss = surrogate - log_likelihood.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    digits = torch.randint(DIGITS, (256, LENGTH))
    with torch.no_grad():
        scores, weights = model.eval()(digits)  # in evaluation the best position is read
    right = (scores.argmax(dim=-1) == digits.flip(1)).float().mean()
    print(f"digits reversed: {right:.3f}; read at {weights.argmax()[0].tolist()}")
    assert right > 0.99
    assert weights.argmax()[0].tolist() == [*reversed(range(LENGTH))]


if __name__ == "__main__":
    main()
