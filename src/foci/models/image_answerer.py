"""Stacked attention: answers a question about an image by looking at it several times.

    v_Q   = LSTM(E w_1 … E w_T)_T,          v_i = tanh(W_I f_i + b_I)       f_i region i of the image
    h_i^k = tanh(W^k v_i + U^k u^{k−1}),    p_i^k = softmax_i(w^k · h_i^k),    u^0 = v_Q
    u^k   = Σ_i p_i^k v_i + u^{k−1},        answer = softmax(W_u relu(W_h [u^K; v_Q] + b_h) + b_u)

Paper: Stacked Attention Networks for Image Question Answering (Yang, He, Gao, Deng, Smola, 2016), eqs. 5-7, 11
    and 15-22, arXiv:1511.02274
Names: f = encoder's values, v_Q = question's summary, W_I and b_I = project, W^k and U^k and w^k = hops[k − 1].score,
    p^k = attentions["k − 1"], K = num_hops, W_h and b_h = fuse, W_u and b_u = output
Complexity: that of the encoders, plus O(K · S · A) for S regions and a score of size A
Differs: the image network is small and trained with the rest, where the paper has a fixed VGG; a region's place is
    added to its features, since a small network does not tell places apart; the score has no bias b_A. The paper's
    answer is softmax(W_u u^K + b_u), in which question and image meet in the attention alone: trained from scratch it
    learns very slowly to look, and the hidden layer W_h lets them meet from the first step on; or, by option, their
    product tanh(V (u^K − v_Q)) ∘ tanh(W v_Q), with which "is there a red one?" is a comparison of the two. Any other
    score and normalizer can take the place of the paper's.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from foci.checks import check_ids
from foci.errors import check_sizes
from foci.layers.dropout import Dropout
from foci.masks import keys
from foci.models.attention import build_attention
from foci.models.encoders.image_grid import Image, ImageGridEncoder, places
from foci.models.encoders.recurrent import RecurrentTextEncoder
from foci.models.options.images import ImageAnswererOptions
from foci.models.options.text_encoders import RecurrentTextEncoderOptions
from foci.outputs import AttentionOutput
from foci.tracing import exportable
from foci.weights import Weights


@exportable
class AnswererOutput(NamedTuple):
    """The scores of each answer, and where each hop looked: ``attentions["0"] (B, 1, S)`` over the regions."""

    logits: Float[Tensor, "B C"]
    attentions: dict[str, Weights]


class ImageAnswerer(nn.Module):
    """Answers questions about images.

    Call it with ``images (I, 3, H, W)``, bytes from 0 to 255, and ``questions (B, T)``, word ids padded with 0;
    ``image_of (B)`` has the number of each question's image, where that is not its own number. Each image is encoded
    once, however many questions are about it.

    Args:
        vocabulary: number of word ids.
        num_answers: number of answers.
        options: sizes and options.

    Example:
        >>> import torch
        >>> from foci.models.options.images import ImageGridOptions
        >>> model = ImageAnswerer(11, 5, ImageAnswererOptions(hidden_dim=6, encoder=ImageGridOptions(hidden_dim=8)))
        >>> images, questions = torch.zeros(2, 3, 16, 12, dtype=torch.uint8), torch.tensor([[7, 8, 9], [5, 0, 0]])
        >>> answered = model(images, questions)
        >>> answered.logits.shape, answered.attentions["1"].shape, model.grid(16, 12)
        (torch.Size([2, 5]), torch.Size([2, 1, 12]), (4, 3))
    """

    def __init__(self, vocabulary: int, num_answers: int, options: ImageAnswererOptions) -> None:
        super().__init__()
        check_sizes(type(self).__name__, num_answers=num_answers)
        size, attention = options.hidden_dim, options.attention
        attention = replace(attention, score=attention.score or "additive")
        self.encoder = ImageGridEncoder(options.encoder)
        self.question = RecurrentTextEncoder(
            vocabulary,
            RecurrentTextEncoderOptions(
                embedding_dim=options.embedding_dim,
                hidden_dim=size,
                cell=options.cell,
                bidirectional=False,
                dropout=options.dropout,
            ),
        )
        self.project = nn.Linear(options.encoder.hidden_dim + 2, size)
        self.hops = nn.ModuleList(build_attention(size, size, attention) for _ in range(options.num_hops))
        self.dropout = Dropout(options.dropout)
        self.fuse = nn.Linear(2 * size, size)
        self.product = ProductFusion(size) if options.fusion == "product" else None
        self.output = nn.Linear(size, num_answers)

    def grid(self, height: int, width: int) -> tuple[int, int]:
        """Return how many regions down and across an image of this size has."""
        return self.encoder.grid(height, width)

    def forward(
        self, images: Image, questions: Int[Tensor, "Q T"], image_of: Int[Tensor, " Q"] | None = None
    ) -> AnswererOutput:
        """Answer a batch of questions."""
        owner = type(self).__name__
        check_ids(owner, "questions", questions, images.shape[0] if image_of is None else image_of.shape[0], "word")
        encoded = self.encoder(images)
        middles = places(self.grid(images.shape[2], images.shape[3]), encoded.values)
        regions = torch.tanh(self.project(torch.cat([encoded.values, middles], dim=-1)))
        mask = keys(encoded.valid)
        if image_of is not None:
            regions, mask = regions[image_of], mask[image_of]
        summary = self.question(questions, questions > 0).summary
        question = query = summary[0][:, -1:]  # (B, 1, D): the last layer's state after the last word
        attentions = {}
        for number, hop in enumerate(self.hops):
            attended: AttentionOutput = hop(query, regions, mask=mask)
            query = query + attended.output
            attentions[str(number)] = attended.weights
        hidden = torch.relu(self.fuse(torch.cat([query, question], dim=-1)))
        if self.product is not None:
            hidden = hidden + self.product(query - question, question)
        return AnswererOutput(self.output(self.dropout(hidden.squeeze(1))), attentions)


class ProductFusion(nn.Module):
    """Multiplies two vectors, each after a layer of its own: ``tanh(V read + b) ∘ tanh(W question + c)``.

    Paper: Hadamard Product for Low-rank Bilinear Pooling (Kim et al., 2017), eq. 9, arXiv:1610.04325
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.read, self.question = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, read: Float[Tensor, "*B D"], question: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """Return the product."""
        return torch.tanh(self.read(read)) * torch.tanh(self.question(question))
