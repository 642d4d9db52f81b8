"""Show, attend and tell: the paper's equations in plain loops, REINFORCE by enumeration, hard attention, stepping."""

from itertools import pairwise, product

import pytest
import torch
from flat_models import recurrent_captioner, transformer_captioner

from foci.decoding.selection import select
from foci.errors import ConfigError
from foci.layers.token_loss import Targets
from foci.mechanisms.sampled import probabilities_of
from foci.models.captioner import CaptionedImages

SIZES = {"embedding_dim": 3, "hidden_dim": 7, "annotation_dim": 5, "attention_dim": 2, "encoder": "own"}
FEATURES = torch.randn(2, 2, 3, 11, generator=torch.Generator().manual_seed(1))
WORDS = torch.tensor([[1, 5, 6, 7, 2], [1, 8, 2, 0, 0], [1, 9, 9, 2, 0]])
IMAGE_OF = torch.tensor([1, 0, 1])


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def captioner(**options):
    return recurrent_captioner(13, 11, **{**SIZES, **options})


def told(model, features=FEATURES, words=WORDS, image_of=IMAGE_OF):
    return model(CaptionedImages(features, image_of), None, words[:, :-1], Targets(words[:, 1:]))


def equations(model, features, words, chosen=None):
    """The log-probability of each word and the weights of each step of one caption, as the paper computes them.

    ``chosen`` are the regions that hard attention reads; without them the weighted sum is read.
    """
    decoder, (down, across, _) = model.decoder, features.shape
    regions = []
    for row, column in product(range(down), range(across)):
        place = torch.tensor([(2 * row + 1) / down - 1, (2 * column + 1) / across - 1])
        regions.append(torch.tanh(model.encoder.project(torch.cat([features[row, column], place]))))
    mean = sum(regions) / len(regions)
    hidden, cell = torch.tanh(decoder.bridge.hidden(mean)), decoder.bridge.cell(mean)
    layers = decoder.recurrence.layers
    logs, weights = [], []
    for step, (word, following) in enumerate(pairwise(words)):
        embedded = decoder.embedding.weight[word]
        score = decoder.attention.score
        energies = [score.vector @ torch.tanh(score.query_layer(hidden) + score.key_layer(one)) for one in regions]
        alpha = torch.softmax(torch.stack(energies), dim=0)
        weights.append(alpha)
        read = sum(w * one for w, one in zip(alpha, regions)) if chosen is None else regions[chosen[step]]
        context = torch.sigmoid(decoder.gate(hidden)) * read
        gates = (
            layers.weight_ih_l0 @ torch.cat([embedded, context])
            + layers.weight_hh_l0 @ hidden
            + layers.bias_ih_l0
            + layers.bias_hh_l0
        )
        write, keep, new, show = gates.chunk(4)
        cell = torch.sigmoid(keep) * cell + torch.sigmoid(write) * torch.tanh(new)
        hidden = torch.sigmoid(show) * torch.tanh(cell)
        out = decoder.output(embedded + decoder.readout.layer(torch.cat([hidden, context])))
        logs.append(torch.log_softmax(out, dim=0)[following])
    return torch.stack(logs), torch.stack(weights)


def test_soft_attention_and_its_loss_are_those_of_the_equations():
    model = captioner(double_weight=0.7)
    found = told(model)
    loss = double = 0.0
    for row, words in enumerate(WORDS.tolist()):
        words = words[: words.index(2) + 1]
        logs, weights = equations(model, FEATURES[IMAGE_OF[row]], words)
        count = len(logs)
        torch.testing.assert_close(found.log_probs[row, :count], logs)
        torch.testing.assert_close(found.attentions["decoder.cross"].dense()[row, :count], weights)
        loss = loss - logs.sum()
        double = double + 0.7 * sum((1 - weights[:, region].sum()) ** 2 for region in range(6))
    torch.testing.assert_close(found.loss, loss)
    torch.testing.assert_close(found.terms["double"], double)
    gradients = [torch.autograd.grad(total, model.decoder.gate.weight, retain_graph=True)[0] for total in (
        found.loss + found.terms["double"], loss + double)]  # fmt: skip
    torch.testing.assert_close(*gradients)


def test_reinforce_is_an_unbiased_estimate_of_the_gradient_by_enumeration():
    """The mean of the estimate over all choices, by their probabilities, is the gradient of the expected loss."""
    model = captioner(attention="hard", expectation_share=0.0, reward_weight=1.0, entropy_weight=0.0).double()
    model.baseline.fill_(-3.0)
    features, words = FEATURES[:1, :, :1].double(), WORDS[2:, :4]
    names, parameters = zip(*model.named_parameters())
    expected = 0.0
    for chosen in product(range(2), repeat=3):
        logs, weights = equations(model, features[0], words[0].tolist(), chosen)
        chance = torch.stack([weights[step, region] for step, region in enumerate(chosen)]).prod()
        expected = expected - chance * logs.sum()
    exact = torch.autograd.grad(expected, parameters, allow_unused=True)
    seen, mean = {}, [0.0] * len(parameters)
    for number in range(200):
        torch.manual_seed(number)
        model.baseline.fill_(-3.0)
        found = told(model, features, words, None)
        handle = found.attentions["decoder.cross"]
        chosen = tuple(handle.argmax()[0].tolist())
        if chosen in seen:
            continue
        seen[chosen] = handle.log_prob.sum().exp().item()
        gradients = torch.autograd.grad(found.loss + sum(found.terms.values()), parameters, allow_unused=True)
        mean = [total if grad is None else total + seen[chosen] * grad for total, grad in zip(mean, gradients)]
    assert len(seen) == 8
    assert sum(seen.values()) == pytest.approx(1.0)
    for name, one, other in zip(names, exact, mean):
        if one is not None:
            torch.testing.assert_close(one, other, msg=name)


def test_entropy_and_baseline_of_hard_attention():
    model = captioner(attention="hard", expectation_share=0.0, entropy_weight=0.3)
    model.baseline.fill_(-2.0)
    found = told(model)
    chosen = found.attentions["decoder.cross"].argmax()
    entropy = surrogate = 0.0
    rewards = []
    for row, words in enumerate(WORDS.tolist()):
        words = words[: words.index(2) + 1]
        logs, weights = equations(model, FEATURES[IMAGE_OF[row]], words, chosen[row].tolist())
        torch.testing.assert_close(found.log_probs[row, : len(logs)], logs)
        entropy = entropy - (weights * weights.log()).sum()
        rewards.append(logs.sum().item())
        picked = sum(weights[step, region].log() for step, region in enumerate(chosen[row, : len(logs)].tolist()))
        surrogate = surrogate - 0.1 * (rewards[-1] + 2.0) * picked
    torch.testing.assert_close(found.terms["entropy"], -0.3 * entropy)
    torch.testing.assert_close(found.terms["reinforce"], surrogate)
    assert model.baseline.item() == pytest.approx(0.9 * -2.0 + 0.1 * sum(rewards) / 3)
    told(model.eval())
    assert model.baseline.item() == pytest.approx(0.9 * -2.0 + 0.1 * sum(rewards) / 3)


def test_half_of_the_captions_read_the_weighted_sum_all_along():
    model = captioner(attention="hard")
    images = FEATURES[:1].expand(400, -1, -1, -1)
    found = told(model, images, WORDS[:1].expand(400, -1), None)
    handle = found.attentions["decoder.cross"]
    sampled = handle.dense().amax(dim=-1) == 1.0
    assert (sampled == sampled[:, :1]).all()
    assert 160 < int(sampled[:, 0].sum()) < 240
    assert ((handle.log_prob != 0) == sampled).all()
    torch.testing.assert_close(handle.dense()[~sampled], probabilities_of(handle)[~sampled])


@pytest.mark.parametrize("attention", ["hard", "gumbel"])
def test_without_training_the_likeliest_region_is_read(attention):
    model = captioner(attention=attention).eval()
    handle = told(model).attentions["decoder.cross"]
    best = [equations(model, FEATURES[1], WORDS[0].tolist(), handle.argmax()[0].tolist())[1].argmax(dim=1)]
    assert torch.equal(handle.argmax()[0], best[0])
    assert set(handle.dense().unique().tolist()) == {0.0, 1.0}
    model.train()
    found = told(model)
    (found.loss + sum(found.terms.values(), 0.0)).backward()
    key = dict(model.named_parameters())
    vector = next(name for name in key if name.endswith("score.vector"))
    assert key[vector].grad.abs().sum() > 0


MODELS = {
    "soft": captioner,
    "hard": lambda: captioner(attention="hard"),
    "sparsemax, location-aware": lambda: captioner(normalize="sparsemax", score="location_aware"),
    "heads": lambda: captioner(hidden_dim=8, num_heads=2, score="scaled_dot"),
    "small network": lambda: recurrent_captioner(13, region_dim=8, block_attention="cbam", annotation_dim=5),
    "transformer": lambda: transformer_captioner(
        13, 11, encoder="own", model_dim=8, num_heads=2, hidden_dim=12, num_layers=2, double_weight=1.0
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_stepping_equals_teacher_forcing_and_padding_changes_nothing(name):
    model = MODELS[name]().eval()
    images = FEATURES
    if name == "small network":
        images = torch.randint(0, 256, (2, 3, 13, 10), dtype=torch.uint8)
    together = model(CaptionedImages(images, IMAGE_OF), None, WORDS).logits
    for row in range(3):
        alone = model(images[IMAGE_OF[row]][None], None, WORDS[row : row + 1, :2]).logits
        torch.testing.assert_close(together[row, :2], alone[0], atol=1e-5, rtol=1e-4)
    memory, state = model.start(images, None)
    tokens = WORDS[[1, 1, 0, 2]]  # two hypotheses of each image
    state = select(state, torch.tensor([0, 0, 1, 1]))
    for place in range(3):
        made = model.step(tokens[:, place], memory, state)
        state = made.state
        torch.testing.assert_close(made.logits[[2, 0, 3]], together[:, place], atol=1e-5, rtol=1e-4)


def test_the_transformer_has_the_doubly_stochastic_term_of_its_last_layer():
    model = MODELS["transformer"]()
    found = told(model.eval())
    weights = found.attentions["decoder.1.cross"].dense().mean(dim=1)
    wanted = 0.0
    for row, count in enumerate((4, 2, 3)):
        wanted += ((1 - weights[row, :count].sum(dim=0)) ** 2).sum()
    torch.testing.assert_close(found.terms["double"], wanted)


def test_options_that_do_not_fit():
    with pytest.raises(ConfigError, match="Did you mean 'sparsemax'"):
        captioner(normalize="sparsmax")
    with pytest.raises(ConfigError, match="feature_dim is None"):
        recurrent_captioner(13, encoder="efficientnet_lite0")
    with pytest.raises(ConfigError, match="expected normalize='sample' and one head"):
        captioner(attention="hard", num_heads=7, score="dot", expectation_share=0.5)
