"""Hard attention by REINFORCE: each step samples one position, and learns to write digits in reverse order."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import foci

DIGITS, LONGEST = 10, 8


class Reverser(nn.Module):
    """Writes the digits of a sequence in reverse: each step reads one position, and sees nothing else."""

    def __init__(self, dim: int = 32) -> None:
        super().__init__()
        self.digits, self.steps = nn.Embedding(DIGITS, dim), nn.Embedding(LONGEST, dim)
        self.encoder = nn.GRU(dim, dim, bidirectional=True, batch_first=True)
        self.attention = foci.build("hard", query_dim=dim, key_dim=2 * dim)
        self.output = nn.Linear(dim, DIGITS)

    def forward(self, digits: Tensor, valid: Tensor) -> tuple[Tensor, foci.Weights]:
        value = self.digits(digits) * valid.unsqueeze(-1)
        key, _ = self.encoder(value)
        query = self.steps.weight.expand(len(digits), -1, -1)
        seen, weights, _ = self.attention(query, key, value, foci.masks.keys(valid))
        return self.output(seen), weights


def examples(rows: int) -> tuple[Tensor, Tensor, Tensor]:
    """Sequences of 3 to 8 digits, which of them exist, and the digits in reverse; -100 is no digit."""
    lengths, places = torch.randint(3, LONGEST + 1, (rows, 1)), torch.arange(LONGEST)
    valid = places < lengths
    digits = torch.randint(DIGITS, (rows, LONGEST)) * valid
    return digits, valid, digits.gather(1, (lengths - 1 - places).clamp(min=0)).masked_fill(~valid, -100)


def main() -> None:
    torch.manual_seed(0)
    model = Reverser()
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    baseline: Tensor | float = 0.0
    for _ in range(600):
        digits, valid, target = examples(128)
        scores, weights = model(digits, valid)
        wrong = F.cross_entropy(scores.mT, target, reduction="none")  # 0 at padding
        assert weights.log_prob is not None
        surrogate, baseline = foci.functional.sample.reinforce(
            weights.log_prob * valid, -wrong, baseline, entropy=weights.entropy() * valid, entropy_weight=0.2
        )
        optimizer.zero_grad()
        (wrong.sum() / len(digits) + surrogate).backward()
        optimizer.step()
    digits, valid, target = examples(1000)
    with torch.no_grad():
        scores, weights = model.eval()(digits, valid)  # in evaluation the likeliest position is read
    right = (scores.argmax(dim=-1) == target)[valid].float().mean()
    print(f"digits reversed: {right:.3f}; of the first sequence read at {weights.argmax()[0].tolist()}")
    assert right >= 0.99


if __name__ == "__main__":
    main()
