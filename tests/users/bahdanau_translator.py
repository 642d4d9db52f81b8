"""Bahdanau's translator: a source is projected once and read step by step; the foreign language reverses the words."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import foci

WORDS, LENGTH = 9, 5
START = WORDS


class Translator(nn.Module):
    def __init__(self, dim: int = 32) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(WORDS, dim), nn.Embedding(WORDS + 1, dim)
        self.encoder = nn.GRU(dim, dim, batch_first=True, bidirectional=True)
        self.attention = foci.build("bahdanau", query_dim=dim, key_dim=2 * dim, hidden_dim=dim)
        self.cell = nn.GRUCell(3 * dim, dim)
        self.begin, self.output = nn.Linear(dim, dim), nn.Linear(3 * dim, WORDS)

    def forward(self, source: Tensor, mask: Tensor, target: Tensor | None = None) -> tuple[Tensor, list[foci.Weights]]:
        """Return the scores of the words, teacher-forced with a target, and the weights of each step."""
        encoded, last = self.encoder(self.source(source))
        memory = self.attention.prepare(encoded, mask=mask)
        hidden, word = torch.tanh(self.begin(last[1])), torch.full_like(source[:, 0], START)
        scores, weights = [], []
        for step in range(source.shape[1]):
            read = self.attention.read(hidden.unsqueeze(1), memory)
            context = read.output.squeeze(1)
            hidden = self.cell(torch.cat([self.target(word), context], dim=-1), hidden)
            scores.append(self.output(torch.cat([hidden, context], dim=-1)))
            weights.append(read.weights)
            word = scores[-1].argmax(dim=-1) if target is None else target[:, step]
        return torch.stack(scores, dim=1), weights


def sentences(rows: int) -> tuple[Tensor, Tensor, Tensor]:
    """Sources of 3 to 5 words, which of them exist, and their translations."""
    lengths = torch.randint(3, LENGTH + 1, (rows,))
    source, valid = torch.randint(WORDS, (rows, LENGTH)), foci.masks.lengths(lengths, LENGTH)
    places = (lengths.unsqueeze(1) - 1 - torch.arange(LENGTH)).clamp(min=0)
    return source, valid, (source.gather(1, places) + 3) % WORDS


def main() -> None:
    torch.manual_seed(0)
    model = Translator()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(300):
        source, valid, target = sentences(48)
        scores, _ = model(source, foci.masks.keys(valid), target)
        loss = F.cross_entropy(scores[valid], target[valid])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    source, valid, target = sentences(64)
    with torch.no_grad():
        scores, weights = model.eval()(source, foci.masks.keys(valid))
    right = (scores.argmax(dim=-1) == target)[valid].float().mean()
    print(f"words translated correctly: {right:.3f}")
    assert right > 0.9
    assert all(not step.mass(~valid.unsqueeze(1)).any() for step in weights)  # nothing is read of the padding
    labels = {"source": [str(int(word)) for word in source[0][valid[0]]], "target": [str(i) for i in range(LENGTH)]}
    trace = foci.Trace.from_handles({"cross": weights}, labels, {"cross": ("target", "source")})
    trace.print()


if __name__ == "__main__":
    main()
