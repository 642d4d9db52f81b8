"""The cloze reader: the papers' equations in plain loops, padding, dead rows, anonymous candidates, what it learns."""

import math
import re

import pytest
import torch

import foci
from foci.errors import ConfigError, ShapeError, UnknownNameError
from foci.models.cloze_reader import Reader
from foci.models.options.words import ReaderOptions

READERS = {"sum": {}, "over_attention": {"reader": "over_attention"}, "gated": {"hops": 2}}
DOCUMENT = [[3, 7, 5, 7, 9, 4, 5], [6, 4, 8, 0, 0, 0, 0]]
QUESTION = [[4, 2, 7, 3, 8], [2, 6, 0, 0, 0]]
PLACES = [[-1, 0, 1, 0, 2, -1, 1], [1, -1, 0, -1, -1, -1, -1]]
ASKED_PLACES = [[-1, -1, 0, -1, -1], [-1, 1, -1, -1, -1]]
BLANK, COUNT = [1, 0], [3, 2]


def batch():
    return tuple(map(torch.tensor, (DOCUMENT, QUESTION, PLACES, ASKED_PLACES, BLANK, COUNT)))


def make(**options):
    torch.manual_seed(5)
    return Reader(
        13, options.pop("vector_dim", 0), ReaderOptions(**{"embedding_dim": 6, "hidden_dim": 8, **options})
    ).eval()


def softmax(scores):
    powers = [math.exp(score) for score in scores]
    return [power / sum(powers) for power in powers]


def dot(one, other):
    return float(sum(a * b for a, b in zip(one.tolist(), other.tolist())))


def encoded(model, number=0, layer=0, words=None, asking=None):
    """Both texts of one row as the model's encoders have them."""
    document, question, *_ = batch()
    if words is None:
        words, asking = model.embed(*batch()[:4])
    D, _ = model.document_encoders[layer](words, document > 0)
    Q, (last, *_) = model.question_encoders[layer](asking, question > 0)
    return D[number], Q[number], last[number, -1]


@pytest.mark.parametrize("question", ["blank", "ends"])
@pytest.mark.parametrize("row", [0, 1])
def test_the_attention_sum_is_the_paper(question, row):
    model = make(question=question)
    D, Q, ends = encoded(model, row)
    asking = Q[BLANK[row]] if question == "blank" else ends
    read = [place for place, number in enumerate(PLACES[row]) if number >= 0]
    weights = softmax([dot(asking, D[place]) for place in read])
    sums = [sum(w for w, place in zip(weights, read) if PLACES[row][place] == c) for c in range(3)]
    found = model(*batch())
    assert found.probabilities[row].tolist() == pytest.approx(sums, abs=1e-6)
    shares = dict(zip(read, weights))
    expected = [shares.get(place, 0.0) for place in range(7)]
    assert found.attentions["document"].dense()[row].tolist() == pytest.approx(expected, abs=1e-6)


def test_attention_over_attention_is_the_paper():
    model = make(reader="over_attention")
    D, Q, _ = encoded(model)
    read = [place for place, number in enumerate(PLACES[0]) if number >= 0]
    alpha = [softmax([dot(D[place], Q[j]) for place in read]) for j in range(5)]
    rows = [softmax([dot(D[place], Q[j]) for j in range(5)]) for place in read]
    beta = [sum(row[j] for row in rows) / len(read) for j in range(5)]
    s = [sum(alpha[j][n] * beta[j] for j in range(5)) for n in range(len(read))]
    sums = [sum(w for w, place in zip(s, read) if PLACES[0][place] == c) for c in range(3)]
    found = model(*batch())
    assert found.probabilities[0].tolist() == pytest.approx(sums, abs=1e-6)
    assert found.attentions["question"].dense()[0].tolist() == pytest.approx(beta, abs=1e-6)
    assert found.attentions["words"].dense()[0, 2, read].tolist() == pytest.approx(alpha[2], abs=1e-6)


def test_a_hop_gates_each_word_by_what_it_reads_of_the_question():
    model = make(hops=1)
    _, asking = model.embed(*batch()[:4])
    D, Q, _ = encoded(model)
    gated = []
    for place in range(7):
        shares = softmax([dot(D[place], Q[j]) for j in range(5)])
        gate = sum(share * Q[j] for j, share in enumerate(shares))
        gated.append(D[place] * gate)
    first = torch.zeros(2, 7, 8)
    first[0] = torch.stack(gated)
    D2, Q2, _ = encoded(model, layer=1, words=first, asking=asking)
    read = [place for place, number in enumerate(PLACES[0]) if number >= 0]
    weights = softmax([dot(Q2[BLANK[0]], D2[place]) for place in read])
    found = model(*batch())
    assert found.attentions["document"].dense()[0, read].tolist() == pytest.approx(weights, abs=1e-6)
    assert found.attentions["hop1"].shape == (2, 7, 5)


@pytest.mark.parametrize("kind", READERS)
def test_padding_changes_nothing(kind):
    model = make(**READERS[kind])
    together = model(*batch())
    document, question, places, asked, blank, count = (tensor[1:] for tensor in batch())
    alone = model(document[:, :3], question[:, :2], places[:, :3], asked[:, :2], blank, count)
    torch.testing.assert_close(together.probabilities[1:, :2], alone.probabilities)
    assert together.probabilities[1, 2] == 0
    for name, handle in alone.attentions.items():
        whole = together.attentions[name].dense()[1:]
        torch.testing.assert_close(whole[tuple(slice(size) for size in handle.shape)], handle.dense())


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize("empty", ["document", "question", "candidates"])
def test_a_row_with_nothing_to_read_gives_zeros_and_finite_gradients(kind, empty):
    model = make(**READERS[kind]).train()
    document, question, places, asked, blank, count = batch()
    if empty == "document":
        document[1], places[1] = 0, -1
    elif empty == "question":
        question[1], asked[1], blank[1] = 0, -1, -1
    else:
        places[1], count[1] = -1, 0
    found = model(document, question, places, asked, blank, count)
    assert found.probabilities[1].tolist() == [0, 0, 0]
    assert found.probabilities[0].sum().item() == pytest.approx(1, abs=1e-5)
    found.probabilities[:, 0].sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_a_question_without_a_blank_asks_by_its_ends():
    document, question, places, asked, blank, count = batch()
    found = make()(document, question, places, asked, torch.full_like(blank, -1), count)
    expected = make(question="ends")(*batch())
    torch.testing.assert_close(found.probabilities, expected.probabilities)


def test_anonymous_candidates_are_known_by_their_number_alone():
    model = make(anonymize=1.0, overlap=True)
    renamed = [tensor.clone() for tensor in batch()]
    for words, places in ((renamed[0], renamed[2]), (renamed[1], renamed[3])):
        for old, new in ((7, 11), (5, 12)):
            words[(words == old) & (places >= 0)] = new
    torch.testing.assert_close(model(*batch()).probabilities, model(*renamed).probabilities)
    named = make(anonymize=0.5)  # a share is for training alone
    assert not torch.allclose(named(*batch()).probabilities, named(*renamed).probabilities)
    torch.testing.assert_close(named(*batch()).probabilities, make_like(named).probabilities)


def make_like(model):
    """What a reader without entities gives that has the weights of this one."""
    plain = make()
    plain.load_state_dict({name: value for name, value in model.state_dict().items() if name != "entities.weight"})
    return plain(*batch())


def test_entities_are_drawn_anew_and_differ_within_a_question():
    model = make(anonymize=1.0, entities=7).train()
    torch.manual_seed(0)
    numbers = torch.arange(5).repeat(300, 1)
    drawn = model._drawn(numbers)
    assert all(len(set(row)) == 5 for row in drawn.tolist())
    counts = torch.bincount(drawn[:, 0], minlength=7)
    assert counts.min() > 20  # of 300 / 7 on average
    assert model.eval()._drawn(torch.tensor([[8, -1]])).tolist() == [[1, 0]]


def test_the_feature_says_which_words_are_in_the_question():
    model = make()
    words, asking = model.embed(*batch()[:4])
    assert words[0, :, -1].tolist() == [float(word in QUESTION[0]) for word in DOCUMENT[0]]
    assert words[1, :, -1].tolist() == [1, 0, 0, 0, 0, 0, 0]
    assert asking[..., -1].abs().sum() == 0
    assert make(overlap=False).embed(*batch()[:4])[0].shape[-1] == 6


def test_given_vectors_stand_beside_the_learned_ones_and_are_not_trained():
    model = make(vector_dim=3)
    assert not model.vectors.weight.requires_grad
    with torch.no_grad():
        model.vectors.weight[7] = 2.0
    words, _ = model.embed(*batch()[:4])
    assert words[0, 1, 6:9].tolist() == [2, 2, 2]
    assert words[0, 0, 6:9].tolist() == [0, 0, 0]


@pytest.mark.parametrize("kind", READERS)
def test_it_learns_a_batch(kind):
    torch.manual_seed(1)
    model = Reader(13, 0, ReaderOptions(embedding_dim=12, hidden_dim=16, **READERS[kind])).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    answers = torch.tensor([[2], [0]])
    for _ in range(40):
        loss = -model(*batch()).probabilities.gather(1, answers).log().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.05
    with foci.record(model.eval()) as tape, torch.no_grad():
        model(*batch())
    assert {re.split("[.:]", path)[0] for path in tape.paths} == ({"point", "gates"} if kind == "gated" else {"point"})


def test_mistakes():
    with pytest.raises(UnknownNameError, match="over_attention"):
        make(reader="over_attentoin")
    with pytest.raises(UnknownNameError, match="blank"):
        make(question="blnk")
    with pytest.raises(ConfigError, match="hops is -1"):
        make(hops=-1)
    with pytest.raises(ConfigError, match="shared is True with 1 hops"):
        make(hops=1, shared=True)
    with pytest.raises(ShapeError, match=r"places has shape \(2, 3\), expected \(2, 7\)"):
        make()(*batch()[:2], torch.zeros(2, 3, dtype=torch.long), *batch()[3:])
    shared = make(shared=True)
    assert shared.question_encoders is shared.document_encoders
