"""Cloze readers: which candidate fills the blank of a question, read off attention over the words of a document.

    D, Q    = BiGRU(E(document)), BiGRU(E(question))
    s_i     = softmax_i(q · D_i),   q = [→Q_R; ←Q_1], or Q at the blank         Attention Sum Reader
    s       = αᵀ β                                                              Attention-over-Attention Reader
    P(c)    = Σ_{i: c is at i} s_i
    a hop:  D_i ← D_i ∘ Σ_j softmax_j(D_i · Q_j) Q_j,   then both are encoded again   Gated-Attention Reader

Paper: Text Understanding with the Attention Sum Reader Network (Kadlec et al., 2016), section 3; α, β: Attention-over-
    Attention Neural Networks for Reading Comprehension (Cui et al., 2017), section 3; hops: Gated-Attention Readers for
    Text Comprehension (Dhingra et al., 2017), section 3
Names: E = embedding, D = document_encoders, Q = question_encoders, s = attentions["document"], α = attentions["words"],
    β(i) = attentions["to_question"], β = attentions["question"]
Complexity: O((S + R) · D²) and S steps one after another for each encoder; O(S · R · D) for a hop and for α, β
Differs: the N-best re-ranking of Cui et al. (their section 4) is left out. Only words that are candidates are read at
    last, so that their probabilities sum to 1, as in Dhingra et al.; where all words are candidates that is the same. A
    candidate of several words counts where it begins. The feature "occurs in the question" enters the first layer.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from foci import masks
from foci.checks import check_ids
from foci.errors import check_positive
from foci.functional.pointer import sum_occurrences
from foci.layers.dropout import Dropout
from foci.layers.embedding import uniform_table
from foci.layers.recurrent import RecurrentEncoder
from foci.mechanisms.attention import Attention
from foci.mechanisms.pair import AttentionOverAttention
from foci.models.options.words import ReaderOptions
from foci.outputs import weights_of
from foci.tracing import exportable
from foci.weights import Weights


@exportable
class ReaderOutput(NamedTuple):
    """The probability of each candidate, and the weights of every attention of the pass by name.

    A row is 0 where no candidate is in the document, or the document or the question is empty.
    """

    probabilities: Float[Tensor, "B K"]
    attentions: dict[str, Weights]


class Reader(nn.Module):
    """Fills the blank of a question with one of the candidates that are in a document.

    Call it with the word ids ``document (B, S)`` and ``question (B, R)`` (0 is padding), with ``places (B, S)`` and
    ``question_places (B, R)``, the number of the candidate that begins at each word (-1 for none), ``blank (B,)``, the
    place of the blank in the question (-1 for none), and ``num_candidates (B,)``.

    Args:
        vocabulary: number of word ids.
        vector_dim: size of the given word vectors, which are not trained; 0 for none.
        options: sizes and options.

    Example:
        >>> import torch
        >>> model = Reader(11, 0, ReaderOptions(embedding_dim=6, hidden_dim=8))
        >>> document, question = torch.tensor([[4, 7, 5, 7]]), torch.tensor([[4, 3]])
        >>> places, none = torch.tensor([[-1, 0, 1, 0]]), torch.tensor([[-1, -1]])
        >>> found = model(document, question, places, none, torch.tensor([1]), torch.tensor([2]))
        >>> found.probabilities.shape, round(found.probabilities.sum().item(), 4), found.attentions["document"].shape
        (torch.Size([1, 2]), 1.0, torch.Size([1, 4]))
    """

    def __init__(self, vocabulary: int, vector_dim: int, options: ReaderOptions) -> None:
        super().__init__()
        check_positive("Reader", vocabulary=vocabulary)
        embedding_dim, hidden_dim, hops = options.embedding_dim, options.hidden_dim, options.hops
        self.at_blank = options.question == "blank"
        self.overlap = options.overlap
        self.anonymize = options.anonymize
        self.dropout = Dropout(options.dropout)
        self.word_dropout = Dropout(options.word_dropout)
        bound = (3 / embedding_dim) ** 0.5
        self.embedding = uniform_table(vocabulary, embedding_dim, bound=bound, padding=0)
        self.vectors = nn.Embedding(vocabulary, vector_dim, 0) if vector_dim else None
        if self.vectors is not None:
            nn.init.zeros_(self.vectors.weight).requires_grad_(False)
        self.entities = uniform_table(options.entities, embedding_dim, bound=bound) if options.anonymize else None
        size = embedding_dim + vector_dim + (1 if options.overlap else 0)
        self.document_encoders = _encoders([size, *[hidden_dim] * hops], options)
        self.question_encoders = self.document_encoders if options.shared else _encoders([size] * (hops + 1), options)
        self.gates = nn.ModuleList(Attention(hidden_dim, score="dot") for _ in range(hops))
        by_sum = options.reader == "sum"
        self.point = Attention(hidden_dim, score="dot") if by_sum else AttentionOverAttention(hidden_dim)

    def forward(
        self,
        document: Int[Tensor, "B S"],
        question: Int[Tensor, "B R"],
        places: Int[Tensor, "B S"],
        question_places: Int[Tensor, "B R"],
        blank: Int[Tensor, " B"],
        num_candidates: Int[Tensor, " B"],
    ) -> ReaderOutput:
        """Return the probability of each candidate."""
        check_ids("Reader", "document", document, "batch", "word")
        check_ids("Reader", "question", question, len(document), "word")
        check_ids("Reader", "places", places, *document.shape)
        check_ids("Reader", "question_places", question_places, *question.shape)
        words, asking = self.embed(document, question, places, question_places)
        return self.read(words, asking, document > 0, question > 0, places, blank, num_candidates)

    def read(
        self,
        words: Float[Tensor, "B S D"],
        asking: Float[Tensor, "B R D"],
        valid: Bool[Tensor, "B S"],
        asked: Bool[Tensor, "B R"],
        places: Int[Tensor, "B S"],
        blank: Int[Tensor, " B"],
        num_candidates: Int[Tensor, " B"],
    ) -> ReaderOutput:
        """Return the probability of each candidate for words that are given as vectors, and which of them exist."""
        attentions: dict[str, Weights] = {}
        for number, (encode, encode_question) in enumerate(zip(self.document_encoders, self.question_encoders)):
            encoded, _ = encode(self.dropout(words), valid)
            compared, state = encode_question(self.dropout(asking), asked)
            if number < len(self.gates):
                gate, attentions[f"hop{number + 1}"], _ = self.gates[number](encoded, compared, mask=masks.keys(asked))
                words = encoded * gate
        encoded, compared = self.dropout(encoded), self.dropout(compared)
        weights, further = self._point(encoded, compared, state[0][:, -1], valid & (places >= 0), asked, blank)
        most = torch.arange(int(num_candidates.max()) if len(num_candidates) else 0, device=words.device)
        numbers = torch.where(most < num_candidates.unsqueeze(1), most, -1)
        probabilities = sum_occurrences(weights, places, numbers)
        return ReaderOutput(probabilities, {"document": Weights.from_tensor(weights), **further, **attentions})

    def embed(
        self,
        document: Int[Tensor, "B S"],
        question: Int[Tensor, "B R"],
        places: Int[Tensor, "B S"],
        question_places: Int[Tensor, "B R"],
    ) -> tuple[Float[Tensor, "B S D"], Float[Tensor, "B R D"]]:
        """Return the words of both texts as vectors, candidates anonymous where that was drawn."""
        ids, numbers = torch.cat([document, question], dim=1), torch.cat([places, question_places], dim=1)
        learned = self.embedding(ids)
        given = None if self.vectors is None else self.vectors(ids)
        if self.training and self.word_dropout.p > 0:
            kept = self.word_dropout(torch.ones(ids.shape, device=ids.device)) > 0
            learned = learned * kept.unsqueeze(-1)
        if self.entities is not None and (self.training or self.anonymize == 1):
            hidden = numbers >= 0
            if self.training:
                hidden = hidden & (torch.rand(len(ids), 1, device=ids.device) < self.anonymize)
            learned = torch.where(hidden.unsqueeze(-1), self.entities(self._drawn(numbers)), learned)
            given = None if given is None else given.masked_fill(hidden.unsqueeze(-1), 0.0)
        embedded = learned if given is None else torch.cat([learned, given], dim=-1)
        length = document.shape[1]
        if self.overlap:
            same = (document.unsqueeze(2) == question.unsqueeze(1)) & (document > 0).unsqueeze(2)
            of_document = same.any(dim=2)
            both = torch.cat([of_document, torch.zeros_like(question, dtype=torch.bool)], dim=1)
            embedded = torch.cat([embedded, both.unsqueeze(-1).to(embedded.dtype)], dim=-1)
        return embedded[:, :length], embedded[:, length:]

    def _drawn(self, numbers: Tensor) -> Tensor:
        """The entity of each candidate: in training a random permutation for each row, else its own number."""
        count = self.entities.num_embeddings if self.entities is not None else 1
        wrapped = numbers.clamp_min(0) % count
        if not self.training:
            return wrapped
        order = torch.rand(len(numbers), count, device=numbers.device).argsort(dim=1)
        return order.gather(1, wrapped)

    def _point(
        self,
        document: Float[Tensor, "B S D"],
        question: Float[Tensor, "B R D"],
        ends: Float[Tensor, "B D"],
        valid: Bool[Tensor, "B S"],
        asked: Bool[Tensor, "B R"],
        blank: Int[Tensor, " B"],
    ) -> tuple[Float[Tensor, "B S"], dict[str, Weights]]:
        """The weight of each word of the document, and the attentions that it is made of."""
        if isinstance(self.point, AttentionOverAttention):
            found = weights_of(self.point(document, question, valid, asked))
            further = {"question": found[":right"], "words": found[""], "to_question": found[":reverse"]}
            return found[":left"].dense(), further
        asking = self.dropout(ends)
        if self.at_blank and question.shape[1]:
            at = blank.clamp_min(0).reshape(-1, 1, 1).expand(-1, 1, question.shape[2])
            asking = torch.where((blank >= 0).unsqueeze(1), question.gather(1, at).squeeze(1), asking)
        read = self.point(asking.unsqueeze(1), document, mask=masks.keys(valid & asked.any(dim=1, keepdim=True)))
        return read.weights.dense().squeeze(1), {}


def _encoders(sizes: list[int], options: ReaderOptions) -> nn.ModuleList:
    return nn.ModuleList(RecurrentEncoder(size, options.hidden_dim, cell=options.cell) for size in sizes)
