"""Captions of images: where words look by loops, a frozen encoder, unreadable images, both languages, commands."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import foci
import foci_cli
from foci.data import BOS
from foci.data.batching import Sequences
from foci.data.images.drawn import COLORS, SHAPES, caption, draw, find_scene, mentions
from foci.data.images.files import Images
from foci.errors import CheckpointError, ConfigError, DataError
from foci.metrics.boxes import points_at, share_inside
from foci.metrics.captions import caption_scores
from foci.tasks.caption.batches import CaptionExamples, drawn_captions
from foci.tasks.caption.task import Caption
from foci.tasks.frame import config as configs
from foci.tasks.frame.task import Splits
from foci.viz.regions import smooth


def settings(**changes):
    return configs.put(Caption.Config.smallest, {path.replace("__", "."): value for path, value in changes.items()})


def trained(path, **changes):
    foci.train("caption", settings(**changes), out=path, log=lambda text: None)
    return foci.load(path)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("run") / "run", model__attention__normalize="sample")


def mean_color():
    """The user's own network: the mean color of each of 2 × 3 regions."""

    def encode(images):
        return torch.nn.functional.adaptive_avg_pool2d(images.float() / 255, (2, 3))

    return encode


@pytest.mark.parametrize("language", ["en", "zh"])
def test_words_that_name_shapes(language):
    for number in range(20):
        scene = find_scene(f"drawn:several/test/0/{number}")
        text, found = caption(scene, language), mentions(scene, language)
        assert [one.shape for one in found] == sorted([*range(len(scene.shapes))] * 2)
        column = 0 if language == "en" else 1
        wanted = [
            name
            for shape in scene.shapes
            for name in ((shape.color, COLORS[shape.color][0])[column], (shape.kind, SHAPES[shape.kind])[column])
        ]
        assert [text[one.start : one.end] for one in found] == wanted


def test_figures_and_where_words_look_by_loops(run):
    scenes = drawn_captions(5, split="test")
    found = run.evaluate([one._asdict() for one in scenes])
    predictions = run.predict([{"image": one.image} for one in scenes])
    outputs = [one.output for one in predictions]
    scores = caption_scores(outputs, [one.captions for one in scenes])
    assert found.metrics["cider_d"] == pytest.approx(scores["cider_d"])
    assert found.metrics["exact"] == np.mean([one in each.captions for one, each in zip(outputs, scenes)])
    tokenizer, points, inside = run.assets.tokenizer, [], []
    for one in scenes:
        scene = find_scene(one.image)
        words = one.captions[0].split(" ")
        ids = tokenizer.encode(" " + one.captions[0]).ids
        image = torch.from_numpy(draw(scene, 16)).permute(2, 0, 1)[None]
        with torch.no_grad():
            handle = run.model(image, None, torch.tensor([[BOS, *ids[:-1]]])).attentions["decoder.cross"]
        place, shape = -1, 0
        for word in words:
            place += 1
            name = word.rstrip(",")
            if name in ("a", "and", "left", "of", "above", "below", "right"):
                continue
            spread = smooth(handle.dense()[0, place].reshape(4, 4).numpy(), 32, 32)
            points.append(points_at(spread, scene.shapes[shape // 2].box))
            inside.append(share_inside(spread, scene.shapes[shape // 2].box))
            shape += 1
            place += word.endswith(",")  # a comma is a token of its own
    assert found.metrics["pointing"] == pytest.approx(np.mean(points))
    assert found.metrics["inside"] == pytest.approx(np.mean(inside), abs=1e-5)
    assert found.tables["words"].rows[-1][:2] == ("all", len(points))


def test_a_trace_has_the_regions_of_every_word_and_hard_attention_its_probabilities(run):
    (one,) = run.predict(["drawn:several/test/0/1"], trace=True, options={"beam_size": 2, "n_best": 2})
    trace = one.trace
    assert len(one.alternatives) == 1
    assert list(trace.attentions) == ["decoder.probabilities", "decoder.cross"]
    labels = trace.axes["words"].labels
    assert len(labels) == len(run.assets.tokenizer.encode(f" {one.output}").ids) + one.details["finished"]
    assert trace.axes["image"].grid == (4, 4)
    assert np.array_equal(trace.axes["image"].image, draw(find_scene("drawn:several/test/0/1"), 16))
    chances, read = (trace.attention(name).dense() for name in trace.attentions)
    assert np.array_equal(read.argmax(axis=-1), chances.argmax(axis=-1))
    assert set(np.unique(read)) == {0.0, 1.0}
    assert len(np.unique(chances)) > 2


def test_several_captions_of_an_image_share_it():
    images = Images(np.arange(2 * 4 * 4 * 3, dtype=np.uint8).reshape(2, 4, 4, 3), range(2))
    words = Sequences([[5], [6, 7], [8], [9, 5, 6]], 10)
    examples = CaptionExamples(images, [0, 1, 0, 0], words, together=2)
    assert examples.lengths.tolist() == [[2, 3], [1, 5], [1, 4]]
    batch = examples.batch(np.array([1, 0]), [2, 5])
    assert batch.images.shape == (2, 3, 4, 4)
    assert batch.image_of.tolist() == [0, 1, 1]
    assert batch.target.tolist() == [[1, 9, 5, 6, 2], [1, 5, 2, 0, 0], [1, 8, 2, 0, 0]]
    assert torch.equal(batch.images[0], torch.from_numpy(images.pixels[0].transpose(2, 0, 1)))


def test_a_network_of_the_users_own(tmp_path):
    name = f"{__name__}:mean_color"
    run = trained(
        tmp_path / "run", model__encoder={"kind": "frozen", "network": name}, data__cache=str(tmp_path / "cache")
    )
    assert len(np.load(tmp_path / "cache/features.npy")) == 12 + 100
    assert run.assets.image_encoder.shape == (2, 3, 3)
    assert run.model.encoder.output_dim == 5
    image = "drawn:several/test/0/1"
    (one,) = run.predict([image], trace=True)
    assert len(np.load(tmp_path / "cache/features.npy")) == 112  # predictions leave the cache as it is
    assert one.trace.axes["image"].grid == (2, 3)
    found = run.evaluate([one._asdict() for one in drawn_captions(2, split="test")])
    assert found.metrics["images"] == 2
    assert run.predict([image])[0].to_json() == one.to_json()
    files = {
        "tokenizer.json": run.assets.tokenizer.to_text(),
        "image_encoder.json": json.dumps({"name": name, "checksum": "x", "shape": [2, 3, 3]}),
    }
    changed = run.task.Assets.from_files(files.__getitem__)
    with pytest.raises(CheckpointError, match="is not the one that this run was trained with"):
        run.task.predict(run.model, changed, [{"image": image}], Caption.Options(), False, lambda done: None)


def test_parts_by_lists_of_images_and_mistakes(tmp_path):
    scenes = drawn_captions(6)
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(one._asdict()) + "\n" for one in scenes))
    parts = {"train": scenes[:3], "valid": scenes[3:5], "test": scenes[5:]}
    for part, some in parts.items():
        (tmp_path / f"{part}.txt").write_text("".join(f"{Path(one.image).name}\n" for one in some))
    lists = {f"{part}_images": str(tmp_path / f"{part}.txt") for part in parts}

    def read(**data):
        tables = {**settings(), "data": {"path": str(path), **data}}
        return Caption(configs.configure(Caption.Config, tables, "test")).read(lambda text: None)

    assert [[one.image for one in part] for part in read(**lists)] == [
        [one.image for one in parts[name]] for name in ("train", "valid", "test")
    ]
    with pytest.raises(ConfigError, match="data.test_images is not set"):
        read(train_images=lists["train_images"], valid_images=lists["valid_images"])
    with pytest.raises(ConfigError, match="path and builtin are both set"):
        read(builtin=5)
    missing = [{"image": str(tmp_path / f"{number}.png"), "captions": ["a dog"]} for number in range(20)]
    path.write_text("".join(json.dumps(one) + "\n" for one in missing))
    with pytest.raises(DataError, match="none of the 1[0-9] images can be read: .*there is no such file"):
        foci.train("caption", {**settings(), "data": {"path": str(path)}}, out=tmp_path / "run", log=lambda text: None)
    assert not (tmp_path / "run").exists()


def test_unreadable_images_and_long_captions(run, tmp_path):
    first, second = run.predict(
        [str(tmp_path / "no.png"), "drawn:several/test/0/1"], options={"max_length": 2, "min_length": 2}
    )
    assert (first.output, first.score) == ("", None)
    assert "there is no such file" in first.details["notes"][0]
    assert "truncated at max_length" in second.details["notes"][0]
    records = [{"image": str(tmp_path / "no.png"), "captions": ["a"]}, drawn_captions(1)[0]._asdict()]
    assert run.evaluate(records).metrics["unreadable"] == 1
    with pytest.raises(DataError, match="none of the 1 images can be read"):
        run.evaluate(records[:1])


def test_the_readable_images_are_looked_through_once(run, monkeypatch):
    looks = []

    class Counted(list):
        def __iter__(self):
            looks.append(len(self))
            return super().__iter__()

    read = Caption._images

    def images(self, *arguments, **options):
        found = read(self, *arguments, **options)
        found.kept = Counted(found.kept)
        return found

    monkeypatch.setattr(Caption, "_images", images)
    names = [record["image"] for record in run.held_out()[:2]] * 6
    assert len(run.predict(names)) == 12
    assert len(looks) <= 2  # once for those that cannot be read, once for the others


@pytest.mark.slow
def test_chinese_captions_by_commands(tmp_path, capsys):
    out = tmp_path / "run"
    assert foci_cli.main(["train", "caption", "--out", str(out), "--language", "zh", "--builtin", "8", "--size", "16",
                          "--preset", "tiny", "--decoder", "transformer", "--set", "training.max_steps=2",
                          "--set", "data.max_words=8"]) == 0  # fmt: skip
    capsys.readouterr()
    assert foci_cli.main(["predict", str(out), "drawn:several/test/0/1", "--json", "--min-length", "3"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert any("\u4e00" <= letter <= "\u9fff" for letter in found["output"])
    assert foci_cli.main(["evaluate", str(out)]) == 0
    assert "pointing" in capsys.readouterr().out
    assert foci_cli.main(["show", str(out), "drawn:several/test/0/1"]) == 0
    assert "cross" in capsys.readouterr().out


def test_rare_words_are_left_out():
    task = Caption(configs.configure(Caption.Config, settings(tokenizer__min_count=3), "test"))
    scenes = drawn_captions(3)
    assets = task.assets(Splits(scenes, [], []), lambda text: None)
    words = " ".join(one.captions[0] for one in scenes).replace(",", " ,").split()
    assert {piece.strip() for piece in assets.tokenizer.pieces} == {word for word in words if words.count(word) >= 3}


def test_captions_are_compared_with_those_of_similar_training_images(run, tmp_path):
    """A training image is most like itself, also where it is a file with other pixels in its corner."""
    scenes = drawn_captions(12, split="train")
    metrics = run.evaluate([one._asdict() for one in scenes]).metrics
    assert (metrics["nearest_exact"], metrics["nearest_bleu4"]) == (1.0, pytest.approx(100.0))
    other = run.evaluate([one._asdict() for one in drawn_captions(12, split="test")])
    assert other.metrics["nearest_exact"] < 1
    assert "looks most alike" in other.notes["baselines"]
    run.task.baselines, kept = {"neighbors": {"captions": ["a"], "images": "!"}}, run.task.baselines
    with pytest.raises(CheckpointError, match="captions to compare with are not what foci wrote"):
        run.evaluate([scenes[0]._asdict()])
    run.task.baselines = {}  # as in runs of earlier versions
    assert "nearest_exact" not in run.evaluate([scenes[0]._asdict()]).metrics
    run.task.baselines = kept


def test_the_length_penalty_is_fitted_on_validation_images(tmp_path, monkeypatch):
    used = []
    search = Caption.search

    def spied(self, model, sources, numbers, options, prefix=None):
        used.append(options.length_penalty)
        return search(self, model, sources, numbers, options, prefix)

    def cider(self, texts, references):  # best with the penalty of the last search
        return {**scores(self, texts, references), "cider_d": float(used[-1] == 1.5)}

    scores = Caption._text_metrics
    monkeypatch.setattr(Caption, "search", spied)
    monkeypatch.setattr(Caption, "_text_metrics", cider)
    predictor = trained(tmp_path / "run")
    assert predictor.task.calibration == {"length_penalty": 1.5}
    records = predictor.held_out()[:1]
    used.clear()
    assert predictor.evaluate(records).notes["length_penalty"].startswith("1.5, of (0.6,")
    predictor.predict(records)
    predictor.predict(records, options={"length_penalty": 0.3})
    assert used == [1.5, 1.5, 0.3]
