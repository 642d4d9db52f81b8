"""A hierarchical attention network rates reviews, each of which has one word that decides, and shows that word."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import foci

WORDS, SENTENCES, LENGTH = 30, 4, 5
RATINGS = 5  # the first words are the ratings


class SentenceEncoder(nn.Module):
    """Sentences in context; padding is zero before and after."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.gru = nn.GRU(dim, dim, batch_first=True)

    def forward(self, sentences: Tensor, exists: Tensor) -> Tensor:
        hidden, _ = self.gru(sentences)
        encoded: Tensor = (sentences + hidden) * exists.unsqueeze(-1)
        return encoded


class HAN(nn.Module):
    def __init__(self, dim: int = 24) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, dim)
        self.pool = foci.HierarchicalPool(dim, sentence_encoder=SentenceEncoder(dim))
        self.output = nn.Linear(dim, RATINGS)

    def forward(self, words: Tensor, exists: Tensor) -> Tensor:
        scores: Tensor = self.output(self.pool(self.embed(words), exists).output)
        return scores


def reviews(rows: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Words, which of them exist, labels, and the position of the word that decides."""
    words, label = torch.randint(RATINGS, WORDS, (rows, SENTENCES, LENGTH)), torch.randint(RATINGS, (rows,))
    exists = foci.masks.lengths(torch.randint(2, LENGTH + 1, (rows * SENTENCES,)), LENGTH)
    exists = exists.view(rows, SENTENCES, LENGTH)
    sentence = torch.randint(SENTENCES, (rows,))
    words[torch.arange(rows), sentence, 1] = label
    return words, exists, label, sentence * LENGTH + 1


def main() -> None:
    torch.manual_seed(0)
    model = HAN()
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    for _ in range(200):
        words, exists, label, _ = reviews(64)
        loss = F.cross_entropy(model(words, exists), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    words, exists, label, decisive = reviews(200)
    with torch.no_grad(), foci.record(model.eval()) as tape:
        right = (model(words, exists).argmax(dim=-1) == label).float().mean()
    weights = tape["pool"]
    found = (weights.dense().argmax(dim=-1) == decisive).float().mean()
    print(f"labels: {right:.3f}; the heaviest word decides: {found:.3f}")
    assert right > 0.95
    assert found > 0.9
    assert not weights.dense()[~exists.flatten(1)].any()


if __name__ == "__main__":
    main()
