"""Stacked attention: the paper's equations in plain loops, padding, and learning to look."""

import pytest
import torch
from flat_models import image_answerer
from torch.nn import functional as F

from foci.errors import UnknownNameError

IMAGES = torch.randint(0, 256, (3, 3, 13, 10), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
QUESTIONS = torch.tensor([[3, 4, 5, 6], [7, 8, 0, 0], [0, 0, 0, 0]])


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.mark.parametrize(("hops", "fusion"), [(1, "concat"), (2, "product"), (3, "concat")])
def test_the_hops_are_those_of_the_equations(hops, fusion):
    model = image_answerer(
        11, 5, embedding_dim=3, hidden_dim=7, attention_dim=6, num_hops=hops, region_dim=12, fusion=fusion
    ).eval()
    answered = model(IMAGES, QUESTIONS)
    features = model.encoder(IMAGES).values
    down, across = model.grid(13, 10)
    summary = model.question(QUESTIONS, QUESTIONS > 0).summary[0][:, -1]
    for row in range(3):
        regions = []
        for place in range(down * across):
            y, x = (2 * (place // across) + 1) / down - 1, (2 * (place % across) + 1) / across - 1
            regions.append(torch.tanh(model.project(torch.cat([features[row, place], torch.tensor([y, x])]))))
        query = summary[row]
        for number, hop in enumerate(model.hops):
            score = hop.score
            energies = [
                score.vector @ torch.tanh(score.query_layer(query) + score.key_layer(region)) for region in regions
            ]
            weights = torch.softmax(torch.stack(energies), dim=0)
            torch.testing.assert_close(answered.attentions[str(number)].dense()[row, 0], weights, atol=1e-5, rtol=1e-4)
            query = query + sum(weight * region for weight, region in zip(weights, regions))
        hidden = torch.relu(model.fuse(torch.cat([query, summary[row]])))
        if fusion == "product":
            read = torch.tanh(model.product.read(query - summary[row]))
            hidden = hidden + read * torch.tanh(model.product.question(summary[row]))
        torch.testing.assert_close(answered.logits[row], model.output(hidden), atol=1e-5, rtol=1e-4)


def test_an_answer_does_not_depend_on_its_batch():
    model = image_answerer(11, 5, hidden_dim=6, region_dim=8).eval()
    together = model(IMAGES, QUESTIONS).logits
    alone = [model(IMAGES[:1], QUESTIONS[:1]), model(IMAGES[1:2], QUESTIONS[1:2, :2]), model(IMAGES[2:], QUESTIONS[2:])]
    torch.testing.assert_close(together, torch.cat([one.logits for one in alone]), atol=1e-5, rtol=1e-4)


def test_several_questions_about_one_image():
    model = image_answerer(11, 5, hidden_dim=6, region_dim=8).eval()
    image_of = torch.tensor([1, 0, 1])
    torch.testing.assert_close(
        model(IMAGES[:2], QUESTIONS, image_of).logits, model(IMAGES[image_of], QUESTIONS).logits, atol=1e-5, rtol=1e-4
    )


def test_the_answer_depends_on_question_and_image_and_gradients_are_finite():
    model = image_answerer(11, 5, hidden_dim=6, region_dim=8, block_attention="cbam")
    logits = model(IMAGES, QUESTIONS).logits
    assert not torch.allclose(logits, model(IMAGES.flip(0), QUESTIONS).logits)
    assert not torch.allclose(logits, model(IMAGES, QUESTIONS.flip(0)).logits)
    F.cross_entropy(logits, torch.tensor([0, 1, 2])).backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


def test_an_unknown_fusion_suggests_the_nearest():
    with pytest.raises(UnknownNameError, match="Did you mean 'product'"):
        image_answerer(11, 5, fusion="produkt")


def test_learns_to_look_where_the_question_asks():
    """Two patches of random brightness: the question says which of them decides."""
    chance = torch.Generator().manual_seed(1)
    model = image_answerer(4, 2, embedding_dim=8, hidden_dim=16, region_dim=8, num_stages=1, stride=2, num_hops=1)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(120):
        bright = torch.randint(0, 2, (64, 2), generator=chance)
        images = torch.full((64, 3, 4, 8), 100, dtype=torch.uint8)
        images[:, :, :, :4] += (80 * bright[:, 0]).to(torch.uint8)[:, None, None, None]
        images[:, :, :, 4:] += (80 * bright[:, 1]).to(torch.uint8)[:, None, None, None]
        side = torch.randint(0, 2, (64,), generator=chance)
        answered = model(images, side[:, None] + 2)
        loss = F.cross_entropy(answered.logits, bright.gather(1, side[:, None])[:, 0])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.2
