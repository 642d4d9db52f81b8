"""Classification of images: readers, unreadable images, maps and channels of a trace, metrics of drawn scenes."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

import foci
import foci_cli
from foci.data.images.drawn import draw, find_scene
from foci.errors import ConfigError, DataError
from foci.metrics.boxes import points_at, share_inside
from foci.tasks.classify_images.reader import LabeledImage, augmented, drawn_shapes, read_labeled_images
from foci.tasks.classify_images.task import EVIDENCE, ClassifyImages
from foci.tasks.frame import config as configs
from foci.viz.regions import smooth

Image = pytest.importorskip("PIL.Image")
torch = pytest.importorskip("torch")


def settings(**changes):
    return configs.put(
        ClassifyImages.Config.smallest, {path.replace("__", "."): value for path, value in changes.items()}
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of classes with 30 images, one of them empty and one no image."""
    root = tmp_path_factory.mktemp("shapes")
    for number, one in enumerate(drawn_shapes(30)):
        (root / one.label).mkdir(exist_ok=True)
        Image.fromarray(draw(find_scene(one.image), 20)).save(root / one.label / f"{number}.png")
    files = sorted(root.rglob("*.png"))
    files[0].write_bytes(b"")
    files[1].write_text("no image")
    (root / ".hidden").mkdir()
    return root


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "run"
    foci.train("classify_images", settings(), out=path, log=lambda text: None)
    return foci.load(path)


def test_folders_and_tables_give_the_same_images(folder, tmp_path):
    found = read_labeled_images(folder)
    assert len(found) == 30
    assert {one.label for one in found} == {path.name for path in folder.iterdir() if path.name != ".hidden"}
    rows = [(str(path.relative_to(folder)), path.parent.name) for path in sorted(folder.rglob("*.png"))]
    (folder / "list.csv").write_text("image,label\n" + "".join(f"{a},{b}\n" for a, b in rows), encoding="utf-8")
    (folder / "list.tsv").write_text("".join(f"{b}\t{a}\n" for a, b in rows), encoding="utf-8")
    lines = [json.dumps({"file": a, "kind": b}) + "\n" for a, b in rows]
    (folder / "list.jsonl").write_text("".join(lines), encoding="utf-8")
    assert sorted(read_labeled_images(folder / "list.csv")) == sorted(found)
    assert sorted(read_labeled_images(folder / "list.tsv", columns=(1, 0))) == sorted(found)
    assert sorted(read_labeled_images(folder / "list.jsonl", columns=("file", "kind"))) == sorted(found)


def test_mistakes_in_tables_are_named(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("image,label\na.png,x\n,y\nb.png,\n")
    with pytest.raises(DataError, match=r"a\.csv, line 3: the image is empty.\n2 faults beside 1 good images"):
        read_labeled_images(path)
    with pytest.raises(DataError, match="holds no folders, expected one folder of images for each class"):
        read_labeled_images(tmp_path)
    with pytest.raises(DataError, match="there is no such file or folder"):
        read_labeled_images(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=r"expected a folder with a folder of images per class, or \.csv"):
        read_labeled_images(tmp_path / "a.png" if (tmp_path / "a.png").write_bytes(b"x") else path)


def test_unreadable_images_are_named_and_left_out(folder, tmp_path):
    said = []
    data = {"path": str(folder), "image_size": 16, "batch_size": 20, "valid_share": 0.2}
    foci.train("classify_images", {**settings(), "data": data}, out=tmp_path / "run", log=said.append)
    text = "\n".join(said)
    assert "the file is empty" in text or "not an image" in text
    assert re.search(r"images cannot be read and (is|are) left out", text)
    trained = foci.load(tmp_path / "run")
    records = [one._asdict() for one in read_labeled_images(folder)]
    metrics = trained.evaluate(records).metrics
    assert (metrics["images"], metrics["unreadable"]) == (28, 2)
    assert "evidence_pointing" not in metrics
    good, bad = records[5], {"image": str(tmp_path / "no.png")}
    first, second = trained.predict([bad, {"image": good["image"]}], trace=True)
    assert (first.output, first.score, first.trace) == ("", None, None)
    assert "there is no such file" in first.details["notes"][0]
    assert second.output
    broken = [{"image": str(tmp_path / f"{kind}.png"), "label": kind} for kind in trained.assets.labels]
    with pytest.raises(DataError, match="none of the 5 images to evaluate can be read"):
        trained.evaluate(broken)


def test_moving_the_images_does_not_change_the_split(tmp_path):
    def split(folder):
        folder.mkdir()
        path = folder / "a.jsonl"
        path.write_text("".join(json.dumps({"image": f"{n}.png", "label": "ab"[n % 2]}) + "\n" for n in range(40)))
        task = ClassifyImages(configs.configure(ClassifyImages.Config, {"data": {"path": str(path)}}, "test"))
        return [
            [Path(one.image).name for one in part] for part in task.split(read_labeled_images(path), lambda text: None)
        ]

    first = split(tmp_path / "first")
    assert all(first)
    assert split(tmp_path / "second") == first


def test_only_unreadable_images_leave_no_folder(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"image": f"{n}.png", "label": "ab"[n % 2]}) + "\n" for n in range(40)))
    with pytest.raises(DataError, match=r"none of the \d+ images to train on can be read: .*\d\.png: there is no such"):
        foci.train("classify_images", {**settings(), "data": {"path": str(path)}}, out=tmp_path / "run", log=print)
    assert not (tmp_path / "run").exists()


def test_a_trace_has_maps_and_channels_as_they_were_applied(run):
    name = "drawn:one/test/0/4"
    (prediction,) = run.predict([name], trace=True)
    trace = prediction.trace
    image = torch.from_numpy(draw(find_scene(name), 16)).permute(2, 0, 1)[None]
    with torch.no_grad():
        classified = run.model(image)
    assert list(trace.axes["maps"].labels) == [EVIDENCE, "block 0, places", "block 1, places"]
    maps = trace.attention("maps.0").dense()
    assert maps.shape == (3, 64)  # 16 pixels, halved once
    raw = classified.attentions["0.spatial"].dense()[0, 0].flatten().numpy()
    assert np.allclose(maps[1], (raw - raw.min()) / (raw - raw.min()).sum(), atol=1e-5)
    channels = trace.attention("channels of block 1")
    assert np.allclose(channels.extras["weight"], classified.attentions["1.channel"].dense().flatten(1).numpy())
    assert trace.cross_attentions()[0].name == "maps.0"
    assert np.array_equal(trace.axes["image"].image, draw(find_scene(name), 16))
    assert "channel" in "".join(trace.axes)


def test_places_of_drawn_images_by_loops(run):
    records = [one._asdict() for one in drawn_shapes(9, split="test")]
    evaluation = run.evaluate(records)
    hits, shares = [], []
    for record, prediction in zip(records, run.predict([{"image": one["image"]} for one in records], trace=True)):
        box = find_scene(record["image"]).shapes[0].box
        spread = smooth(prediction.trace.attention("maps.0").dense()[1].reshape(8, 8), 16, 16)
        hits.append(points_at(spread, box))
        shares.append(share_inside(spread, box))
    row = next(row for row in evaluation.tables["maps"].rows if row[0] == "block 0, places")
    assert row[1] == pytest.approx(np.mean(hits))
    assert row[2] == pytest.approx(np.mean(shares), abs=1e-5)


def test_plain_networks_have_the_evidence_alone(tmp_path):
    foci.train("classify_images", settings(model__block_attention="none"), out=tmp_path / "run", log=lambda text: None)
    (prediction,) = foci.load(tmp_path / "run").predict(["drawn:one/test/0/1"], trace=True)
    assert list(prediction.trace.attentions) == ["maps.0"]
    assert list(prediction.trace.axes["maps"].labels) == [EVIDENCE]


def test_images_are_moved_and_mirrored():
    torch.manual_seed(0)
    images = torch.randint(0, 255, (40, 3, 5, 7), dtype=torch.uint8)
    flipped = augmented(images, flip=True)
    same, mirrored = ((flipped == other).flatten(1).all(1) for other in (images, images.flip(3)))
    assert (same ^ mirrored).all()
    assert 5 < same.sum() < 35
    moved = augmented(images, shift=2)
    for image, found in zip(images, moved):
        padded = torch.nn.functional.pad(image[None].float(), (2, 2, 2, 2), mode="replicate")[0]
        places = [
            (i, j) for i in range(5) for j in range(5) if torch.equal(padded[:, i : i + 5, j : j + 7], found.float())
        ]
        assert places
    assert len({tuple(image.flatten().tolist()) for image in moved}) == 40


def test_commands_take_files_and_show_images(run, folder, tmp_path, capsys):
    file = sorted(folder.rglob("*.png"))[7]
    assert foci_cli.main(["predict", str(run.path), "--file", str(file)]) == 0
    assert "%" in capsys.readouterr().out
    assert foci_cli.main(["show", str(run.path), str(file)]) == 0
    out = capsys.readouterr().out
    assert "evidence for the class" in out
    assert "block 1, places" in out
    assert foci_cli.main(["show", str(run.path), str(file), "--attention", "channels of block 1"]) == 0
    assert "largest:" in capsys.readouterr().out
    for ending in ("png", "html"):
        assert foci_cli.main(["show", str(run.path), str(file), f"--{ending}", str(tmp_path / f"a.{ending}")]) == 0
    assert foci_cli.main(["show", str(run.path), str(file), "--png", str(tmp_path / "b.png"), "--view", "bars"]) == 0
    assert (tmp_path / "b.png").stat().st_size > 1000


def test_records_are_named_tuples():
    assert LabeledImage("a.png", "x")._asdict() == {"image": "a.png", "label": "x"}
