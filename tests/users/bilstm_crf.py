"""A BiLSTM with a CRF: chunks begin with a name or a title and go on over names; no decoding breaks the BIO scheme."""

import torch
from torch import Tensor, nn

import foci

TAGS = ["O", "B", "I"]
WORDS, NAMES, LENGTH = 20, 6, 9  # words below NAMES are names


class Tagger(nn.Module):
    def __init__(self, dim: int = 24) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, dim)
        self.lstm = nn.LSTM(dim, dim, batch_first=True, bidirectional=True)
        self.emissions = nn.Linear(2 * dim, len(TAGS))
        allowed = foci.mechanisms.structured.constraints(TAGS)
        self.crf = foci.CRF(len(TAGS), **allowed._asdict())

    def loss(self, words: Tensor, tags: Tensor, valid: Tensor) -> Tensor:
        return -self.crf.log_likelihood(self.emitted(words), tags, valid).mean()

    def forward(self, words: Tensor, valid: Tensor) -> Tensor:
        """Return the best tags, -1 at padding."""
        return self.crf.viterbi(self.emitted(words), valid).tags[:, 0]

    def emitted(self, words: Tensor) -> Tensor:
        scores: Tensor = self.emissions(self.lstm(self.embed(words))[0])
        return scores


def sentences(rows: int) -> tuple[Tensor, Tensor, Tensor]:
    words = torch.randint(WORDS, (rows, LENGTH))
    valid = foci.masks.lengths(torch.randint(4, LENGTH + 1, (rows,)), LENGTH)
    name = words < NAMES
    goes_on = torch.zeros_like(name)
    goes_on[:, 1:] = name[:, 1:] & name[:, :-1]
    return words, torch.where(goes_on, 2, name.long()), valid


def main() -> None:
    torch.manual_seed(0)
    model = Tagger()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(100):
        loss = model.loss(*sentences(32))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    words, tags, valid = sentences(100)
    with torch.no_grad():
        found = model.eval()(words, valid)
        noise = model.crf.viterbi(torch.randn(100, LENGTH, len(TAGS))).tags[:, 0]
    right = (found == tags)[valid].float().mean()
    print(f"tags: {right:.3f}")
    assert right > 0.95
    assert (found[~valid] == -1).all()
    for decoded in (found, noise):  # I never follows O, nor begins a sentence
        assert not (decoded[:, 0] == 2).any()
        assert not ((decoded[:, 1:] == 2) & (decoded[:, :-1] == 0)).any()


if __name__ == "__main__":
    main()
