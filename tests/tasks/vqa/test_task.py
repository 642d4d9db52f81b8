"""Questions about images: readers, splits without shared images, unreadable images, maps of the hops."""

import json

import numpy as np
import pytest
import torch

import foci
import foci_cli
from foci.data.images.drawn import draw, find_scene, questions
from foci.errors import ConfigError, DataError
from foci.metrics.boxes import points_at, share_inside
from foci.tasks.frame import config as configs
from foci.tasks.frame.task import Shard, silent
from foci.tasks.vqa.reader import ImageQuestion, drawn_questions, read_image_questions
from foci.tasks.vqa.task import Vqa
from foci.viz.regions import smooth


def settings(**changes):
    return configs.put(Vqa.Config.smallest, {path.replace("__", "."): value for path, value in changes.items()})


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "run"
    foci.train("vqa", settings(model__num_hops=3), out=path, log=lambda text: None)
    return foci.load(path)


def test_all_forms_give_the_same_questions(tmp_path):
    asked = drawn_questions(3, language="zh")
    (tmp_path / "a.jsonl").write_text(
        "".join(json.dumps(one._asdict(), ensure_ascii=False) + "\n" for one in asked), encoding="utf-8"
    )
    (tmp_path / "a.tsv").write_text("".join("\t".join(one[::-1]) + "\n" for one in asked), encoding="utf-8")
    (tmp_path / "a.csv").write_text("q,i,a\n" + "".join(f"{q},{i},{a}\n" for i, q, a in asked), encoding="utf-8")
    assert read_image_questions(tmp_path / "a.jsonl") == asked
    assert read_image_questions(tmp_path / "a.tsv", columns=(2, 1, 0)) == asked
    assert read_image_questions(tmp_path / "a.csv", columns=("i", "q", "a")) == asked
    line = json.dumps({"image": "b/c.png", "question": "how many?", "answer": 3})
    (tmp_path / "b.jsonl").write_text(line)
    assert read_image_questions(tmp_path / "b.jsonl") == [ImageQuestion(str(tmp_path / "b/c.png"), "how many?", "3")]


def test_mistakes_are_named(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("image\tquestion\tanswer\na.png\tq\ta\nb.png\t\ta\n")
    with pytest.raises(DataError, match=r"a\.tsv, line 3: the question is empty"):
        read_image_questions(path)
    with pytest.raises(DataError, match="no column 'reply' in the first line"):
        read_image_questions(path, columns=("image", "question", "reply"))
    with pytest.raises(ConfigError, match=r"expected a \.csv, \.tsv or \.jsonl file"):
        read_image_questions(path.rename(tmp_path / "a.txt"))


def test_no_image_is_in_two_parts():
    asked = drawn_questions(40)
    data = {"path": "given", "valid_share": 0.1, "test_share": 0.2}
    said = []
    found = Vqa(configs.configure(Vqa.Config, {"data": data}, "test")).split(asked, said.append)
    parts = [{one.image for one in part} for part in found]
    assert all(parts)
    assert len(set().union(*parts)) == 40 == sum(map(len, parts))
    assert sorted([*found.train, *found.valid, *found.test]) == sorted(asked)
    assert f"{len(asked) - 40} of {len(asked)} questions have the same image as another one" in said[0]


def test_maps_of_the_hops_and_figures_by_loops(run):
    asked = drawn_questions(4, split="test")
    records = [one._asdict() for one in asked]
    evaluation = run.evaluate(records)
    predictions = run.predict([{"image": one.image, "question": one.question} for one in asked], trace=True)
    hits, right = [], 0
    for one, prediction in zip(asked, predictions):
        right += prediction.output == one.answer
        trace = prediction.trace
        assert trace.axes["hops"].labels == ("hop 1", "hop 2", "hop 3")
        assert np.array_equal(trace.axes["image"].image, draw(find_scene(one.image), 16))
        scene = find_scene(one.image)
        about = next(each.about for each in questions(scene) if each.question == one.question)
        if about:
            spread = smooth(trace.attention("hops").dense()[2].reshape(trace.axes["image"].grid), 16, 16)
            boxes = [scene.shapes[number].box for number in about]
            inside = sum(share_inside(spread, box) for box in boxes)
            hits.append((any(points_at(spread, box) for box in boxes), inside))
    assert evaluation.metrics["accuracy"] == pytest.approx(right / len(asked))
    assert evaluation.metrics["pointing"] == pytest.approx(np.mean([hit for hit, _ in hits]))
    assert evaluation.metrics["inside"] == pytest.approx(np.mean([inside for _, inside in hits]), abs=1e-5)
    assert len(evaluation.tables["hops"].rows) == 3
    with torch.no_grad():
        image = torch.from_numpy(draw(find_scene(asked[0].image), 16)).permute(2, 0, 1)[None]
        words = torch.tensor([run.assets.vocabulary.ids(["what", "colour", "is", "the", "circle", "?"])])
        weights = run.model(image, words).attentions["1"].dense()[0, 0]
    assert asked[0].question == "what colour is the circle?"
    assert np.allclose(predictions[0].trace.attention("hops").dense()[1], weights.numpy(), atol=1e-5)


def test_unreadable_images_long_and_unknown_questions(run, tmp_path):
    image = "drawn:several/test/0/1"
    first, second, third = run.predict(
        [
            {"image": str(tmp_path / "no.png"), "question": "what?"},
            {"image": image, "question": "zebra crossing lights"},
            {"image": image, "question": "is there a red shape? " * 30},
        ]
    )
    assert (first.output, first.score) == ("", None)
    assert "there is no such file" in first.details["notes"][0]
    assert "3 of 3 words are unknown to this run: 'zebra'" in second.details["notes"][0]
    assert "only the first 50 of 180 words were read" in third.details["notes"][0]
    records = [
        {"image": image, "question": "what?", "answer": "red"},
        {"image": image, "question": "what?", "answer": "a zebra"},
        {"image": str(tmp_path / "no.png"), "question": "what?", "answer": "red"},
    ]
    evaluation = run.evaluate(records)
    assert (evaluation.metrics["questions"], evaluation.metrics["unreadable"]) == (2, 1)
    assert "1 answers were not trained" in evaluation.notes["unknown_answers"]
    with pytest.raises(
        DataError, match=r"none of the 1 questions to evaluate can be read: .*no\.png: there is no such file"
    ):
        run.evaluate(records[2:])


def test_rare_answers_are_counted(tmp_path):
    said = []
    foci.train("vqa", settings(data__max_answers=3, training__max_steps=2), out=tmp_path / "run", log=said.append)
    assert any("questions have none of the 3 most frequent answers" in text for text in said)
    assert len(foci.load(tmp_path / "run").assets.labels) == 3


def test_chinese_questions_and_commands(tmp_path, capsys):
    out = tmp_path / "run"
    assert foci_cli.main(["train", "vqa", "--out", str(out), "--language", "zh", "--builtin", "8", "--size", "16",
                          "--preset", "tiny", "--hops", "1", "--set", "training.max_steps=2"]) == 0  # fmt: skip
    capsys.readouterr()
    assert foci_cli.main(["show", str(out), "drawn:several/test/0/1", "有几个形状？"]) == 0
    assert "hop 1" in capsys.readouterr().out
    assert foci_cli.main(["predict", str(out), "drawn:several/test/0/1", "有几个形状？", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["question"] == "有几个形状？"
    assert found["output"] in foci.load(out).assets.labels


def test_batches_mix_scenes_whatever_questions_they_have():
    # Sorted by their questions, a batch had scenes of two shapes or of three only, and one answer to "how many".
    task = Vqa(configs.configure(Vqa.Config, {"data": {"builtin": 400}}, "test"))
    splits = task.read(silent)
    assets = task.assets(splits, silent)
    batches = task.batches(splits, assets, Shard(), silent)
    two, three = assets.labels.index("two"), assets.labels.index("three")
    for _, _, _, answers in batches.epoch(0):
        assert {two, three} <= {*answers.tolist()}
