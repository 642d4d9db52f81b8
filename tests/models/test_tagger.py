"""The tagger: shapes, padding, what it learns, and how its parts answer to their options."""

import itertools
import math

import pytest
import torch

import foci
from foci.errors import ShapeError, UnknownNameError
from foci.functional import crf
from foci.mechanisms.structured import constraints
from foci.models.options.words import TaggerOptions
from foci.models.tagger import Tagger

ENCODERS, SPELLINGS = ("lstm", "gru", "attention"), ("cnn", "lstm", "none")
SIZES = (13, 11, 0, 7, 5, 3)
SMALL = {"embedding_dim": 6, "character_dim": 5, "spelling_dim": 4, "hidden_dim": 8, "num_heads": 2}


def batch():
    words = torch.tensor([[4, 12, 9, 0, 0], [3, 3, 5, 10, 11]])
    letters = torch.tensor([[0, 0, 0], [3, 4, 0], [5, 0, 0], [6, 2, 1]])
    spelt = torch.tensor([[1, 2, 3, 0, 0], [3, 3, 1, 2, 1]])
    return words, letters, spelt


def make(**options):
    torch.manual_seed(3)
    sizes = options.pop("sizes", SIZES)
    allowed = options.pop("allowed", None)
    return Tagger(*sizes, allowed, TaggerOptions(**{**SMALL, **options})).eval()


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_padding_changes_nothing(encoder, spelling):
    model = make(encoder=encoder, spelling=spelling, num_layers=2, tags_read_intent=True)
    torch.nn.init.normal_(model.intent_tags.weight)
    words, letters, spelt = batch()
    together = model(words, letters, spelt)
    alone = model(words[:1, :3], letters, spelt[:1, :3])
    torch.testing.assert_close(together.emissions[:1, :3], alone.emissions)
    torch.testing.assert_close(together.intents[:1], alone.intents)
    assert together.emissions.shape == (2, 5, 5)
    names = {"intent", *(f"encoder.{layer}.self" for layer in range(2) if encoder == "attention")}
    assert {*together.attentions} == names
    assert together.attentions["intent"].dense()[0, 3:].tolist() == [0.0, 0.0]


def test_directions_count_for_self_attention():
    """Without positions a word would be tagged alike before and after another; rotary positions tell them apart."""
    model = make(encoder="attention", spelling="none")
    first, second = (
        model(torch.tensor([row]), batch()[1], torch.zeros(1, 2, dtype=torch.long)) for row in ([3, 4], [4, 3])
    )
    assert not torch.allclose(first.emissions[0, 0], second.emissions[0, 1], atol=1e-4)


@pytest.mark.parametrize("spelling", ["cnn", "lstm"])
def test_letters_and_their_order_count(spelling):
    model = make(spelling=spelling)
    words, letters, spelt = batch()
    other = letters.clone()
    other[1] = torch.tensor([4, 3, 0])
    assert not torch.allclose(model(words, letters, spelt).emissions, model(words, other, spelt).emissions)
    other = letters.clone()
    other[0] = 5  # what padding is spelt with does not matter
    torch.testing.assert_close(
        model(words, letters, spelt).emissions[0, :3], model(words, other, spelt).emissions[0, :3]
    )


def test_words_without_a_learned_vector_share_one():
    model = make(spelling="none")
    letters, spelt = batch()[1], torch.zeros(1, 1, dtype=torch.long)
    scores = [model(torch.tensor([[word]]), letters, spelt).emissions for word in (10, 11, 12)]
    assert not torch.allclose(scores[0], scores[1])
    torch.testing.assert_close(scores[1], scores[2])
    with_vectors = make(sizes=(13, 11, 4, 7, 5, 3), spelling="none")
    assert not with_vectors.vectors.weight.requires_grad
    with torch.no_grad():
        with_vectors.vectors.weight[12] = 1.0
    scores = [with_vectors(torch.tensor([[word]]), letters, spelt).emissions for word in (11, 12)]
    assert not torch.allclose(*scores)


def test_word_dropout_replaces_words_in_training_only():
    model = make(spelling="none", word_dropout=0.9999)
    words, letters, spelt = batch()
    unknown = model(torch.where(words > 0, 11, 0), letters, spelt).emissions
    assert not torch.allclose(model(words, letters, spelt).emissions, unknown)
    torch.testing.assert_close(model.train()(words, letters, spelt).emissions, unknown)


def test_tags_read_the_intent():
    """Each intent adds its own scores to the tags, weighted by its probability, and they are learned from the tags."""
    model, plain = make(tags_read_intent=True), make()
    plain.load_state_dict(model.state_dict(), strict=False)
    found, without = model(*batch()), plain(*batch())
    torch.testing.assert_close(found.emissions, without.emissions)  # nothing is known of the intents at first
    with torch.no_grad():
        model.intent_tags.weight.copy_(torch.arange(15.0).view(5, 3))
    found = model(*batch())
    shares = found.intents.detach().softmax(dim=-1)
    difference = (found.emissions - without.emissions).detach()
    for row, word, tag in itertools.product(range(2), range(5), range(5)):
        added = sum(float(shares[row, intent]) * (3 * tag + intent) for intent in range(3))
        have = float(difference[row, word, tag])
        assert have == pytest.approx(added, abs=1e-4)
    found.emissions[0, 0, 1].backward()
    torch.testing.assert_close(model.intent_tags.weight.grad[1], shares[0])
    assert make(tags_read_intent=True, sizes=(13, 11, 0, 7, 5, 0)).intent_tags is None


def test_a_softmax_is_a_chain_without_transitions():
    names = ["O", "B-x", "I-x", "B-y", "I-y"]
    model = make(output="softmax")
    scores = model(*batch())
    chain = scores[:4]
    valid = batch()[0] > 0
    torch.testing.assert_close(
        crf.marginals(*chain, valid)[valid], scores.emissions.softmax(-1)[valid], rtol=1e-5, atol=1e-6
    )
    assert {name for name, one in model.named_parameters() if not one.requires_grad} == {
        "crf.transitions", "crf.start", "crf.end"}  # fmt: skip
    constrained = make(output="softmax", allowed=constraints(names))
    with torch.no_grad():
        constrained.output.bias[2] = 50.0  # I-x everywhere, which may not begin a sequence
    tags = crf.viterbi(*constrained(*batch())[:4], valid).tags[:, 0]
    assert tags[0].tolist()[:3] == [1, 2, 2]


def test_constrained_sequences_are_all_that_is_predicted():
    names = ["O", "B-x", "I-x", "B-y", "I-y"]
    allowed = constraints(names)
    model = make(allowed=allowed)
    scores = model(*batch())
    valid = batch()[0] > 0
    tags = crf.viterbi(*scores[:4], valid, 40).tags
    for row in tags.flatten(0, 1).tolist():
        sequence = [tag for tag in row if tag >= 0]
        for one, other in itertools.pairwise(sequence):
            assert allowed.allowed_transitions[one, other]
        assert not sequence or allowed.allowed_start[sequence[0]]


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("output", ["crf", "softmax"])
def test_one_batch_is_learned_by_heart(encoder, output):
    model = make(encoder=encoder, output=output, hidden_dim=16).train()
    words, letters, spelt = batch()
    tags, intents = torch.tensor([[0, 1, 2, 0, 0], [3, 3, 0, 4, 1]]), torch.tensor([2, 0])
    optimizer = torch.optim.Adam([one for one in model.parameters() if one.requires_grad], 0.02)
    for _ in range(120):
        scores = model(words, letters, spelt)
        loss = torch.nn.functional.cross_entropy(scores.intents, intents)
        loss = loss - crf.log_likelihood(*scores[:4], words > 0, tags).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    found = model.eval()(words, letters, spelt)
    best = crf.viterbi(*found[:4], words > 0).tags[:, 0]
    assert best[words > 0].tolist() == tags[words > 0].tolist()
    assert found.intents.argmax(-1).tolist() == intents.tolist()
    assert math.isfinite(loss.item())


def test_recording_sees_its_attentions():
    model = make(encoder="attention")
    with foci.record(model) as tape:
        model(*batch())
    assert any("self_attention" in path for path in tape.paths)
    assert "pool" in tape.paths


def test_mistakes_are_named():
    with pytest.raises(UnknownNameError, match="unknown encoder of TaggerOptions 'lstn'"):
        make(encoder="lstn")
    with pytest.raises(UnknownNameError, match="unknown positions of TaggerOptions 'sinusoidal'"):
        make(positions="sinusoidal")
    with pytest.raises(ShapeError, match="spelt"):
        make()(batch()[0], batch()[1], torch.zeros(2, 4, dtype=torch.long))
