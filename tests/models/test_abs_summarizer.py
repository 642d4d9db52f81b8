"""ABS: the paper's equations in plain loops, and the checks of every sequence-to-sequence model."""

import math

import pytest
import torch
from flat_models import abs_summarizer
from searches import beam, greedy
from seq2seq import (
    BOS,
    SOURCE_VOCABULARY,
    TARGET_VOCABULARY,
    check_gradients_with_an_empty_source,
    check_masked_source_is_not_seen,
    check_padded_equals_alone,
    check_steps_equal_teacher_forcing,
    example,
    generic,
    overfit,
)

from foci.errors import ConfigError
from foci.models.decoders.feed_forward import FeedForwardDecoder
from foci.models.options.decoders import FeedForwardDecoderOptions
from foci.models.options.text_encoders import SmoothedTextEncoderOptions

C, Q = 3, 1


def model(**options):
    sizes = {"embedding_dim": 5, "hidden_dim": 7, "source_dim": 11, "context_size": C, "smoothing": Q} | options
    return generic(abs_summarizer(SOURCE_VOCABULARY, TARGET_VOCABULARY, **sizes))


def dot(one, other):
    return sum(a * b for a, b in zip(one, other))


@torch.no_grad()
def test_the_equations_of_the_paper():
    made = model()
    source, valid, target = example()
    found = made(source, valid, target)
    decoder = made.decoder
    parameters = {name: parameter.tolist() for name, parameter in made.named_parameters()}
    matrix = decoder.attention.score.weight.tolist()  # (query, key)
    for b in range(len(source)):
        length = int(valid[b].sum())
        embedded = [parameters["encoder.embedding.weight"][word] for word in source[b, :length].tolist()]
        smoothed = []
        for i in range(length):
            near = embedded[max(0, i - Q) : i + Q + 1]
            smoothed.append([sum(values) / len(near) for values in zip(*near)])
        words = target[b].tolist()
        for t in range(len(words)):
            window = [words[0]] * max(0, C - 1 - t) + words[max(0, t - C + 1) : t + 1]
            context = [value for word in window for value in parameters["decoder.embedding.weight"][word]]
            asked = [value for word in window for value in parameters["decoder.context_embedding.weight"][word]]
            hidden = [
                math.tanh(dot(row, context) + bias)
                for row, bias in zip(parameters["decoder.hidden.weight"], parameters["decoder.hidden.bias"])
            ]
            scores = [dot(asked, [dot(row, key) for row in matrix]) for key in embedded]
            exponents = [math.exp(score - max(scores)) for score in scores]
            weights = [each / sum(exponents) for each in exponents]
            read = [dot(weights, column) for column in zip(*smoothed)]
            logits = [
                dot(row, hidden + read) + bias
                for row, bias in zip(parameters["decoder.output.weight"], parameters["decoder.output.bias"])
            ]
            assert found.logits[b, t].tolist() == pytest.approx(logits, abs=1e-9)
            assert found.attentions["decoder.cross"].dense()[b, t, :length].tolist() == pytest.approx(weights)


@pytest.mark.parametrize("hypotheses", [1, 3])
def test_steps_equal_teacher_forcing(hypotheses):
    check_steps_equal_teacher_forcing(model(), hypotheses)


@pytest.mark.parametrize("smoothing", [0, 1, 9])
def test_padding_changes_nothing(smoothing):
    check_padded_equals_alone(model(smoothing=smoothing))


def test_masked_words_are_not_seen():
    check_masked_source_is_not_seen(model())


def test_gradients_with_an_empty_source():
    check_gradients_with_an_empty_source(model())


def test_learns_one_batch_by_heart():
    torch.manual_seed(0)
    made = abs_summarizer(
        SOURCE_VOCABULARY, TARGET_VOCABULARY, embedding_dim=24, hidden_dim=48, source_dim=32, smoothing=0
    )
    assert overfit(made, 150, 0.02) > 0.95


@torch.no_grad()
def test_searches_end_and_an_empty_target_is_allowed():
    made = model().float()
    source, valid, _ = example()
    assert len(greedy(made, source, valid)) == len(source)
    assert (
        beam(made, source, valid, size=1, length_penalty=0.0)[0][0].tokens == greedy(made, source, valid)[0][0].tokens
    )
    assert made(source, valid, torch.full((3, 0), BOS)).logits.shape == (3, 0, TARGET_VOCABULARY)


def test_mistakes_are_explained():
    with pytest.raises(ConfigError, match="smoothing is -1, expected 0 or more"):
        SmoothedTextEncoderOptions(smoothing=-1)
    decoder = FeedForwardDecoder(13, 4, FeedForwardDecoderOptions())
    with pytest.raises(ConfigError, match="encoded is None"):
        decoder.start(None)
