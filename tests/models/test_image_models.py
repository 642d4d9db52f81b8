"""Image encoders and classifiers: the blocks in plain torch, maps as they were applied, evidence that adds up."""

import pytest
import torch
from torch.nn import functional as F

import foci
from foci.errors import ConfigError, ShapeError
from foci.models.encoders.image_grid import ImageGridEncoder, as_shares
from foci.models.image_classifier import ImageClassifier
from foci.models.options.images import ImageClassifierOptions, ImageGridOptions
from foci.viz.regions import smooth
from foci.weights import Weights

ATTENTIONS = ("none", "squeeze_excitation", "efficient_channel", "cbam", "spatial")
IMAGES = torch.randint(0, 256, (3, 3, 13, 10), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def normed(x, layer):
    """Group normalization, written out."""
    groups = x.reshape(x.shape[0], layer.num_groups, -1)
    mean, deviation = groups.mean(-1, keepdim=True), groups.var(-1, unbiased=False, keepdim=True)
    whole = ((groups - mean) / torch.sqrt(deviation + layer.eps)).reshape(x.shape)
    return whole * layer.weight[None, :, None, None] + layer.bias[None, :, None, None]


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("stride", [1, 2])
def test_the_blocks_are_those_of_the_equations(attention, stride):
    encoder = ImageGridEncoder(
        ImageGridOptions(hidden_dim=14, num_stages=3, depth=2, stride=stride, block_attention=attention, kernel_size=3)
    )
    encoded = encoder(IMAGES)
    x = IMAGES.float() / 127.5 - 1
    x = F.relu(normed(F.conv2d(x, encoder.stem.weight, stride=stride, padding=1), encoder.norm))
    for number, block in enumerate(encoder.blocks):
        step = 2 if number in (2, 4) else 1
        hidden = F.relu(normed(F.conv2d(x, block.first.weight, stride=step, padding=1), block.first_norm))
        residual = normed(F.conv2d(hidden, block.second.weight, padding=1), block.second_norm)
        for kind in ("channel", "spatial"):
            if f"{number}.{kind}" in encoded.attentions:
                residual = residual * encoded.attentions[f"{number}.{kind}"].dense()
        shortcut = (
            F.conv2d(x, block.shortcut.weight, stride=step) if step == 2 or x.shape[1] != residual.shape[1] else x
        )
        x = F.relu(shortcut + residual)
    down, across = encoder.grid(13, 10)
    assert x.shape[2:] == (down, across)
    torch.testing.assert_close(encoded.values, x.flatten(2).transpose(1, 2), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(encoded.summary[0][:, 0], x.mean(dim=(2, 3)), atol=1e-5, rtol=1e-4)
    assert encoded.valid.all()
    expected = {"none": 0, "cbam": 12}.get(attention, 6)
    assert len(encoded.attentions) == expected


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_an_image_does_not_depend_on_its_batch(attention):
    model = ImageClassifier(5, ImageClassifierOptions(hidden_dim=12, block_attention=attention))
    together = model(IMAGES).logits
    alone = torch.cat([model(IMAGES[row : row + 1]).logits for row in range(3)])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-4)
    assert model(IMAGES[:0]).logits.shape == (0, 5)


def test_unknown_names_are_listed():
    model = ImageClassifier(3, ImageClassifierOptions(block_attention="squeeze_excitation"))
    assert model.encoder.blocks[0].attention.channels == 16
    with pytest.raises(ConfigError, match="unknown block_attention of .* 'cbm'. Did you mean 'cbam'"):
        ImageClassifier(3, ImageClassifierOptions(block_attention="cbm"))
    with pytest.raises(ShapeError, match=r"images has shape \(3, 13, 10\), expected \(batch, 3, height, width\)"):
        ImageClassifier(3, ImageClassifierOptions())(IMAGES[0])


def test_evidence_adds_up_to_the_score():
    model = ImageClassifier(5, ImageClassifierOptions(hidden_dim=12)).eval()
    classified = model(IMAGES)
    for kind in range(5):
        classes = torch.full((3,), kind)
        found = model.evidence(classified.regions, classes).mean(dim=1) + model.output.bias[kind]
        torch.testing.assert_close(found, classified.logits[:, kind])


def test_maps_on_one_grid_are_shares():
    maps = [
        Weights.from_tensor(torch.rand(2, 1, 5, 3)),
        Weights.from_tensor(torch.rand(2, 1, 10, 7)),
        Weights.from_tensor(torch.zeros(2, 1, 2, 2)),
    ]
    shares = as_shares(maps, (10, 7))
    assert shares.shape == (2, 3, 70)
    torch.testing.assert_close(shares.sum(-1)[:, :2], torch.ones(2, 2))
    assert (shares[:, 2] == 0).all()
    for number, handle in enumerate(maps[:2]):
        for row in range(2):
            spread = smooth(handle.dense()[row, 0].numpy(), 10, 7)
            above = torch.from_numpy(spread - spread.min()).float().flatten()
            torch.testing.assert_close(shares[row, number], above / above.sum())


def test_record_sees_every_attention():
    model = ImageClassifier(5, ImageClassifierOptions(hidden_dim=12, block_attention="cbam"))
    with foci.record(model) as tape:
        model(IMAGES)
    assert {path for path in tape.paths if path.endswith("spatial")} == {
        f"encoder.blocks.{number}.attention.spatial" for number in range(3)
    }


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_overfits_a_batch(attention):
    model = ImageClassifier(3, ImageClassifierOptions(hidden_dim=12, block_attention=attention, num_stages=2))
    labels = torch.tensor([0, 1, 2])
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(40):
        loss = F.cross_entropy(model(IMAGES).logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.1
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_stages_are_bounded():
    """A configuration from elsewhere may ask for any number, of which each takes time and the width of the first."""
    ImageGridOptions(num_stages=16)
    with pytest.raises(ConfigError, match="num_stages is 17, expected at most 16: each halves the image"):
        ImageGridOptions(num_stages=17)
