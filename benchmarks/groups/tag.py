"""Sequence labeling

A tagger with 9 labels (19 tags in BIO): letters by a BiLSTM of 25 units each way, word vectors of 100, a BiLSTM of 128
each way, a CRF; 64 sentences of 5 to 40 words. Against the same network written on torch's packed LSTM and pytorch-crf,
with the same weights: the loss and its gradients, and the best tags. Against Flair's SequenceTagger of the same sizes:
the loss with its gradients, and tagging from lists of words to labeled spans with their scores, batches of 32. Its
weights are drawn differently, so that only the number of sentences is compared; ours also computes the exact
probability of each span, Flair the mean of its tags' probabilities. Spans are all of a sentence of 40 words with 39
labels, 62,400, and the probability of each: the kernel against the same sums in torch.
"""

from __future__ import annotations

import logging
import random
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from benchmarks.harness import FORWARD, TRAIN, Call, Case, call
from foci.data.vocabulary import Vocabulary
from foci.functional import crf
from foci.functional.crf import spans_plain as crf_spans_plain
from foci.functional.crf.chain_plain import Chain
from foci.functional.crf.spans import SpanTags, span_distribution
from foci.mechanisms.structured import constraints
from foci.models.options.words import TaggerOptions
from foci.models.tagger import Tagger
from foci.tasks.tag.batches import Letters, TagBatch, TagExamples
from foci.tasks.tag.decoding import chain_of, decode
from foci.tasks.tag.lexicon import TagLexicon
from foci.tasks.tag.schemes import tag_names

SENTENCES, WORDS, TOGETHER = 64, 3000, 32
LABELS = tuple(f"label{number}" for number in range(9))
TAGGING = "tagging"
GOALS = {"pytorch-crf": {TRAIN: 1.0, TAGGING: 1.0}, "flair": {TRAIN: 1.0, TAGGING: 2.0}}


def cases(peer: str, quick: bool) -> Iterator[Case]:
    """Training and tagging against one peer; the probabilities of spans against plain torch."""
    if peer == "torch":
        yield Case(
            name="all spans (1, 40, 79)",
            against="forward and backward messages in torch",
            measure=FORWARD,
            inputs=_chain,
            ours=lambda chain, tags: call(FORWARD, lambda: _every_span(chain, tags)),
            theirs=lambda chain, tags: call(FORWARD, lambda: _every_span_in_torch(chain, tags)),
        )
        return
    for measure in (TRAIN, TAGGING):
        yield Case(
            name=f"{SENTENCES} sentences",
            against={"pytorch-crf": "BiLSTM-CRF on torchcrf.CRF", "flair": "SequenceTagger"}[peer],
            measure=measure,
            inputs=_inputs,
            ours=lambda *inputs, measure=measure: _ours(measure, peer, *inputs),
            theirs=lambda *inputs, measure=measure: {"pytorch-crf": _torchcrf, "flair": _flair}[peer](measure, *inputs),
            tolerance=1e-4,
            goal=GOALS[peer][measure],
        )


def _chain() -> tuple[Chain, SpanTags]:
    lexicon = TagLexicon(
        Vocabulary(("a",), 1), 1, 0, Letters(()), tuple(f"label{n}" for n in range(39)), (), "BIO", 1.0
    )
    count, allowed = len(lexicon.tags), constraints(lexicon.tags, "BIO")
    transitions = torch.randn(count, count).masked_fill(~allowed.allowed_transitions, -torch.inf)
    start = torch.randn(count).masked_fill(~allowed.allowed_start, -torch.inf)
    chain = Chain(torch.randn(1, 40, count), transitions, start, torch.randn(count), None)
    return chain, lexicon.span_tags(torch.device("cpu"))


def _every_span(chain: Chain, tags: SpanTags) -> Tensor:
    return span_distribution(*chain, tags).all().exp()


def _every_span_in_torch(chain: Chain, tags: SpanTags) -> Tensor:
    terms = crf_spans_plain.terms(chain, tags, crf_spans_plain.messages(chain, tags))
    return crf_spans_plain.every_span(terms, chain.emissions.shape[1]).exp()


def _inputs() -> tuple[list[list[str]], TagLexicon, Tagger, list[TagBatch]]:
    chance = random.Random(0)
    known = ["".join(chance.choice("abcdefghijklmnop") for _ in range(chance.randint(2, 10))) for _ in range(WORDS)]
    sentences = [[chance.choice(known) for _ in range(chance.randint(5, 40))] for _ in range(SENTENCES)]
    sentences.sort(key=len, reverse=True)
    vocabulary, letters = Vocabulary(tuple(dict.fromkeys(known)), 1), Letters.count(known)
    lexicon = TagLexicon(vocabulary, len(vocabulary) - 1, 0, letters, LABELS, (), "BIO", 1.0)
    model = Tagger(
        *(len(vocabulary), lexicon.trained, 0, len(letters), len(lexicon.tags), 0),
        None,
        TaggerOptions(embedding_dim=100, spelling="lstm", character_dim=25, spelling_dim=50, hidden_dim=256),
    )
    tags = [[chance.randrange(len(lexicon.tags)) for _ in words] for words in sentences]
    return sentences, lexicon, model, list(_batches(sentences, tags, lexicon))


def _batches(sentences: list[list[str]], tags: list[list[int]] | None, lexicon: TagLexicon) -> Iterator[TagBatch]:
    examples = TagExamples(sentences, tags, [-1] * len(sentences), lexicon.vocabulary, lexicon.letters)
    for start in range(0, len(sentences), TOGETHER):
        indices = torch.arange(start, min(start + TOGETHER, len(sentences))).numpy()
        yield examples.batch(indices, [max(len(sentences[number]) for number in indices)])


def _ours(
    measure: str, peer: str, sentences: list[list[str]], lexicon: TagLexicon, model: Tagger, batches: list[TagBatch]
) -> Call:
    parameters = list(model.parameters())

    def loss() -> Tensor:
        losses = []
        for batch in batches:
            scores = model(batch.words, batch.letters, batch.spelt)
            losses.append(-crf.log_likelihood(*chain_of(scores), batch.words > 0, batch.tags).sum())
        return torch.stack(losses).sum().reshape(1)

    def best() -> object:
        found = []
        for batch in batches:
            scores = model(batch.words, batch.letters, batch.spelt)
            found += [row[row >= 0] for row in crf.viterbi(*chain_of(scores), batch.words > 0).tags[:, 0]]
        return found

    def spans() -> object:
        found = []
        for batch in _batches(sentences, None, lexicon):
            scores = model(batch.words, batch.letters, batch.spelt)
            found += decode(scores, batch.words > 0, lexicon, 1)
        return torch.tensor(len(found))

    if measure == TRAIN:
        return _counted(call(measure, loss, (), parameters), peer)
    return call(measure, best if peer == "pytorch-crf" else spans)


def _counted(work: Call, peer: str) -> Call:
    """Against Flair, whose weights are others, only that there is a loss can be compared."""
    if peer != "flair":
        return work

    def counted() -> object:
        work()
        return torch.tensor(1)

    return counted


def _torchcrf(
    measure: str, sentences: list[list[str]], lexicon: TagLexicon, model: Tagger, batches: list[TagBatch]
) -> Call:
    from torchcrf import CRF

    field = CRF(len(lexicon.tags), batch_first=True)
    with torch.no_grad():
        field.transitions.copy_(model.crf.transitions)
        field.start_transitions.copy_(model.crf.start)
        field.end_transitions.copy_(model.crf.end)
    spelling: Any = model.spelling
    encoder: Any = model.encoder
    words, letters = model.embedding, spelling.table
    of_letters, of_words = spelling.recurrent.recurrence.layers, encoder.recurrence.layers

    def scores(batch: TagBatch) -> tuple[Tensor, Tensor]:
        valid = batch.words > 0
        spelt = batch.letters[batch.spelt[valid]]  # each word of the batch by itself, as it is usually written
        lengths = (spelt > 0).sum(dim=1)
        packed = pack_padded_sequence(letters(spelt), lengths, batch_first=True, enforce_sorted=False)
        last = of_letters(packed)[1][0].transpose(0, 1).flatten(1)
        read = last.new_zeros(*batch.words.shape, last.shape[1]).masked_scatter(valid.unsqueeze(-1), last)
        inputs = torch.cat([words(batch.words), read], dim=-1)
        packed = pack_padded_sequence(inputs, valid.sum(dim=1), batch_first=True, enforce_sorted=False)
        encoded, _ = pad_packed_sequence(of_words(packed)[0], batch_first=True, total_length=batch.words.shape[1])
        return model.output(encoded), valid

    def loss() -> Tensor:
        losses = []
        for batch in batches:
            emissions, valid = scores(batch)
            losses.append(-field(emissions, batch.tags.clamp_min(0), valid, reduction="sum"))
        return torch.stack(losses).sum().reshape(1)

    def best() -> object:
        return [torch.tensor(row) for batch in batches for row in field.decode(*scores(batch))]

    if measure == TRAIN:
        parameters = [*model.parameters(), *field.parameters()]
        ours = {id(parameter) for parameter in model.crf.parameters()}
        return call(measure, loss, (), [parameter for parameter in parameters if id(parameter) not in ours])
    return call(measure, best)


def _flair(
    measure: str, sentences: list[list[str]], lexicon: TagLexicon, model: Tagger, batches: list[TagBatch]
) -> Call:
    flair = _import_flair()
    from flair.data import Dictionary, Sentence
    from flair.embeddings import CharacterEmbeddings, OneHotEmbeddings, StackedEmbeddings
    from flair.models import SequenceTagger

    flair.device = torch.device("cpu")
    words, letters, labels = Dictionary(add_unk=True), Dictionary(add_unk=True), Dictionary(add_unk=False)
    for dictionary, known in ((words, lexicon.vocabulary.words), (letters, lexicon.letters.known), (labels, LABELS)):
        for name in known:
            dictionary.add_item(name)
    labels.span_labels = True
    tagger = SequenceTagger(
        embeddings=StackedEmbeddings(
            [
                OneHotEmbeddings(words, embedding_length=100),
                CharacterEmbeddings(letters, char_embedding_dim=25, hidden_size_char=25),
            ]
        ),
        tag_dictionary=labels,
        tag_type="ner",
        tag_format="BIO",
        hidden_size=128,
        reproject_embeddings=False,
        word_dropout=0.0,
        locked_dropout=0.0,
    )
    tags = tag_names(LABELS, "BIO")

    def tagged() -> list[Any]:
        made = []
        for batch, start in zip(batches, range(0, len(sentences), TOGETHER)):
            for row, tokens in zip(batch.tags.tolist(), sentences[start : start + TOGETHER]):
                sentence = Sentence(tokens, use_tokenizer=False)
                for token, number in zip(sentence, row):
                    prefix, _, label = tags[number].partition("-")
                    if prefix == "B":
                        sentence[token.idx - 1 : token.idx].add_label("ner", label)
                made.append(sentence)
        return made

    if measure == TRAIN:
        ready = tagged()
        parameters = [parameter for parameter in tagger.parameters() if parameter.requires_grad]

        def loss() -> Tensor:
            losses = []
            for start in range(0, len(ready), TOGETHER):
                some = ready[start : start + TOGETHER]
                for sentence in some:
                    sentence.clear_embeddings()
                losses.append(tagger.forward_loss(some)[0])
            return torch.stack(losses).sum().reshape(1)

        return _counted(call(measure, loss, (), parameters), "flair")
    tagger.eval()

    def spans() -> object:
        made = [Sentence(tokens, use_tokenizer=False) for tokens in sentences]
        tagger.predict(made, mini_batch_size=TOGETHER)
        return torch.tensor(len(made))

    return call(measure, spans)


def _import_flair() -> Any:
    """Import Flair, which needs transformers 4: names that version 5 lacks, and that are not used here, are added."""
    import transformers as installed

    transformers: Any = installed
    if not hasattr(transformers, "LayoutLMv2FeatureExtractor"):
        transformers.LayoutLMv2FeatureExtractor = object
    stub: Any = ModuleType("transformer_smaller_training_vocab")
    stub.reduce_train_vocab = None
    sys.modules.setdefault(stub.__name__, stub)
    import flair

    logging.getLogger("flair").setLevel(logging.WARNING)  # it writes its vocabulary otherwise

    return flair
