"""The tagger: a label for each word, chosen for the sentence as a whole.

    c_w = max_t(W_c ∗ E_c(letters of w))_t                           letters, by convolution or by a BiLSTM
    x_w = [E(w); V(w); c_w]                                          learned, given and spelt vector of a word
    h   = BiLSTM(x_1 … x_T)  or  Transformer layers with relative positions
    P   = W h + b  [+ U p(intent)]                                   one score for each word and tag
    p(y) ∝ exp(b[y_1] + Σ_t P[t, y_t] + Σ_t A[y_t, y_t+1] + e[y_T])  (CRF);   Π_t softmax(P_t)[y_t]  (softmax)
    intent: softmax(W_i [h_T→; h_1←; Σ_t α_t h_t]),  α_t = softmax_t(u · tanh(W_a h_t + b_a))

Paper: Neural Architectures for Named Entity Recognition (Lample et al., 2016), sections 2 and 4; letters by
    convolution: End-to-end Sequence Labeling via Bi-directional LSTM-CNNs-CRF (Ma, Hovy, 2016), section 2.1;
    self-attention that knows directions: TENER (Yan et al., 2019), section 3.2; tags that read the intent: A
    Stack-Propagation Framework with Token-Level Intent Detection (Qin et al., 2019), section 2.3
Names: E = embedding, V = vectors, E_c and W_c = spelling, h = encoder, P = output, U = intent_tags, A and b and e =
    crf, α = attentions["intent"]
Complexity: O(T · D²) and T steps one after another (BiLSTM), O(T² · D + T · D²) (self-attention); CRF O(T · K²)
Differs: relative positions are rotary (Su et al., 2021) or ALiBi's instead of TENER's own. A softmax is the CRF with
    all transitions 0, so that both can be constrained to the tags that a scheme allows. The intent, one for the
    sentence, adds to the tags' scores; in Stack-Propagation each word has one, which enters a second LSTM.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from foci import masks
from foci.checks import check_ids
from foci.errors import check_positive
from foci.layers.block_options import BlockOptions
from foci.layers.dropout import Dropout
from foci.layers.embedding import normal_table, uniform_table
from foci.layers.recurrent import RecurrentEncoder
from foci.layers.transformer import EncoderLayer
from foci.mechanisms.pool import AttentionPool
from foci.mechanisms.structured import CRF, Constraints
from foci.models.options.words import TaggerOptions
from foci.tracing import exportable
from foci.weights import Weights


@exportable
class TagScores(NamedTuple):
    """The scores of tags and intents, and the weights of every attention of the pass by name.

    The first four are the chain that `foci.functional.crf` takes; what is not allowed is ``-inf``. ``intents`` has no
    columns where there are no intents.
    """

    emissions: Float[Tensor, "B T K"]
    transitions: Float[Tensor, "K K"]
    start: Float[Tensor, " K"]
    end: Float[Tensor, " K"]
    intents: Float[Tensor, "B I"]
    attentions: dict[str, Weights]


class Tagger(nn.Module):
    """Tags words, and says what kind of sentence they make.

    Call it with ``words (B, T)``, the ids of the words (0 is padding), ``letters (U, C)``, the ids of the letters of
    U different words (0 is padding), and ``spelt (B, T)``, which of these each word is. The functions of
    `foci.functional.crf` turn the scores into tags and probabilities, whether the output is a CRF or a softmax.

    Args:
        vocabulary: number of word ids. Those from ``trained`` on have no learned vector of their own but share the
            last one, which words get that are dropped in training.
        trained: number of ids with a learned vector.
        vector_dim: size of the given word vectors, which are not trained; 0 for none.
        characters: number of letter ids.
        num_tags: number of tags.
        num_intents: number of intents; 0 for none.
        allowed: which tags may follow each other; None allows all.
        options: sizes and options.

    Example:
        >>> import torch
        >>> model = Tagger(11, 10, 0, 7, 5, 3, None, TaggerOptions(embedding_dim=6, hidden_dim=8))
        >>> words, letters = torch.tensor([[4, 10, 0]]), torch.tensor([[0, 0], [3, 4], [5, 0]])
        >>> found = model(words, letters, torch.tensor([[1, 2, 0]]))
        >>> found.emissions.shape, found.intents.shape, found.attentions["intent"].shape
        (torch.Size([1, 3, 5]), torch.Size([1, 3]), torch.Size([1, 3]))
        >>> model.crf.viterbi(found.emissions, words > 0).tags.shape
        torch.Size([1, 1, 3])
    """

    def __init__(
        self,
        vocabulary: int,
        trained: int,
        vector_dim: int,
        characters: int,
        num_tags: int,
        num_intents: int,
        allowed: Constraints | None,
        options: TaggerOptions,
    ) -> None:
        super().__init__()
        check_positive("Tagger", vocabulary=vocabulary, trained=trained, characters=characters, num_tags=num_tags)
        embedding_dim, hidden_dim = options.embedding_dim, options.hidden_dim
        self.trained = trained
        self.word_dropout = Dropout(options.word_dropout)
        self.dropout = Dropout(options.dropout)
        self.embedding = uniform_table(trained + 1, embedding_dim, bound=(3 / embedding_dim) ** 0.5, padding=0)
        self.vectors = nn.Embedding(vocabulary, vector_dim, 0) if vector_dim else None
        if self.vectors is not None:
            nn.init.zeros_(self.vectors.weight).requires_grad_(False)
        self.spelling = None if options.spelling == "none" else _Spelling(characters, options)
        size = embedding_dim + vector_dim + (0 if self.spelling is None else options.spelling_dim)
        self.encoder: _SelfAttention | RecurrentEncoder
        if options.encoder == "attention":
            block = BlockOptions(
                model_dim=hidden_dim,
                num_heads=options.num_heads,
                hidden_dim=2 * hidden_dim,
                norm="pre",
                dropout=options.attention_dropout,
                positions=options.positions,
                **options.head_arguments,
            )
            self.encoder = _SelfAttention(size, block, options.num_layers)
        else:
            self.encoder = RecurrentEncoder(
                size, hidden_dim, cell=options.encoder, num_layers=options.num_layers, dropout=options.dropout
            )
        self.output = nn.Linear(hidden_dim, num_tags)
        self.crf = CRF(num_tags, **({} if allowed is None else allowed._asdict()))
        if options.output == "softmax":
            for parameter in self.crf.parameters():
                nn.init.zeros_(parameter).requires_grad_(False)
        self.pool = AttentionPool(hidden_dim) if num_intents else None
        self.intent_output = nn.Linear(2 * hidden_dim, num_intents) if num_intents else None
        reads = num_intents and options.tags_read_intent
        self.intent_tags = nn.Linear(num_intents, num_tags, bias=False) if reads else None
        if self.intent_tags is not None:
            nn.init.zeros_(self.intent_tags.weight)

    def forward(self, words: Int[Tensor, "B T"], letters: Int[Tensor, "U C"], spelt: Int[Tensor, "B T"]) -> TagScores:
        """Score the tags of a batch of sentences."""
        return self.score(self.embed(words, letters, spelt), words > 0)

    def embed(
        self, words: Int[Tensor, "B T"], letters: Int[Tensor, "U C"], spelt: Int[Tensor, "B T"]
    ) -> Float[Tensor, "B T D"]:
        """Return the vector of each word, of all that is known of it alone."""
        check_ids("Tagger", "words", words, "batch", "word")
        check_ids("Tagger", "spelt", spelt, words.shape[0], words.shape[1])
        check_ids("Tagger", "letters", letters, "word", "letter")
        known = words.clamp_max(self.trained)
        if self.training and self.word_dropout.p > 0:
            dropped = self.word_dropout(torch.ones_like(known, dtype=self.output.weight.dtype)) == 0
            known = known.masked_fill(dropped & (words > 0), self.trained)
        parts = [self.embedding(known)]
        if self.vectors is not None:
            parts.append(self.vectors(words))
        if self.spelling is not None:
            parts.append(self.spelling(letters)[spelt])
        return torch.cat(parts, dim=-1)

    def score(self, vectors: Float[Tensor, "B T D"], valid: Bool[Tensor, "B T"]) -> TagScores:
        """Score the tags of words that are given as vectors; ``valid`` says which of them exist."""
        inputs = self.dropout(vectors)
        attentions: dict[str, Weights] = {}
        if isinstance(self.encoder, RecurrentEncoder):
            encoded, (last, *_) = self.encoder(inputs, valid)
            summary = last[:, -1]
        else:
            encoded, attentions = self.encoder(inputs, valid)
            summary = encoded.sum(dim=1) / valid.sum(dim=1, keepdim=True).clamp_min(1)
        intents = encoded.new_zeros(len(vectors), 0)
        if self.pool is not None and self.intent_output is not None:
            pooled, attentions["intent"], _ = self.pool(encoded, valid)
            intents = self.intent_output(self.dropout(torch.cat([summary, pooled], dim=-1)))
        emissions = self.output(self.dropout(encoded))
        if self.intent_tags is not None:
            emissions = emissions + self.intent_tags(intents.softmax(dim=-1)).unsqueeze(1)
        return TagScores(emissions, *self.crf.scores(), intents, attentions)


class _Spelling(nn.Module):
    """The vector of a word from its letters: ``(U, C)`` ids to ``(U, D)``."""

    def __init__(self, characters: int, options: TaggerOptions) -> None:
        super().__init__()
        size, dim, kernel_size = options.character_dim, options.spelling_dim, options.kernel_size
        recurrent = options.spelling == "lstm"
        self.table = normal_table(characters, size, std=size**-0.5, padding=0)
        self.recurrent = RecurrentEncoder(size, dim) if recurrent else None
        self.conv = None if recurrent else nn.Conv1d(size, dim, kernel_size, padding=kernel_size // 2)

    def forward(self, letters: Int[Tensor, "U C"]) -> Float[Tensor, "U D"]:
        valid = letters > 0
        embedded = self.table(letters)
        if self.recurrent is not None:
            _, (last, *_) = self.recurrent(embedded, valid)
            read: Tensor = last[:, -1]
            return read
        if self.conv is None or letters.shape[1] == 0:
            nothing: Tensor = embedded.new_zeros(len(letters), 0 if self.conv is None else self.conv.out_channels)
            return nothing
        found: Tensor = self.conv(embedded.mT)[..., : letters.shape[1]]
        highest = found.masked_fill(~valid.unsqueeze(1), -torch.inf).amax(dim=-1)
        return torch.tanh(highest.masked_fill(~valid.any(dim=1, keepdim=True), 0.0))


class _SelfAttention(nn.Module):
    """Layers of self-attention over vectors, with relative positions."""

    def __init__(self, input_dim: int, block: BlockOptions, num_layers: int) -> None:
        super().__init__()
        self.project = nn.Linear(input_dim, block.model_dim)
        self.layers = nn.ModuleList(EncoderLayer(block) for _ in range(num_layers))
        self.norm = nn.LayerNorm(block.model_dim)

    def forward(self, inputs: Tensor, valid: Bool[Tensor, "B T"]) -> tuple[Tensor, dict[str, Weights]]:
        x, mask, attentions = self.project(inputs), masks.keys(valid), {}
        for number, layer in enumerate(self.layers):
            x, attentions[f"encoder.{number}.self"] = layer(x, mask)
        return self.norm(x).masked_fill(~valid.unsqueeze(-1), 0.0), attentions
