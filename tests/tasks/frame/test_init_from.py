"""A new run that starts with the weights of another one: what is taken, what is not, and what is an error."""

import json

import pytest
import torch

import foci
import foci_cli
from foci.errors import CheckpointError, ConfigError
from foci.tasks import TASKS
from foci.tasks.entail.builtin import hypernym_pairs
from foci.tasks.frame import config as configs
from foci.tasks.frame.init_from import _copy, take_weights
from foci.tasks.frame.task import find


def train(task, out, log=lambda text: None, **changes):
    tables = configs.put(
        find(task).Config.smallest, {path.replace("__", "."): value for path, value in changes.items()}
    )
    return foci.train(task, tables, out=out, log=log)


def started(run):
    """The weights a run would start with: those of its task before any step."""
    predictor = foci.load(run)
    torch.manual_seed(predictor.config.training.seed)
    model = predictor.task.model(predictor.assets)
    said = []
    take_weights(predictor.task, model, predictor.assets, said.append)
    return model.state_dict(), said


@pytest.mark.parametrize("task", [*TASKS])
def test_the_same_data_gives_all_weights(task, tmp_path):
    train(task, tmp_path / "first", training__max_steps=2)
    said = []
    train(task, tmp_path / "second", said.append, training__max_steps=1, training__init_from=str(tmp_path / "first"))
    recorded = json.loads((tmp_path / "second" / "config.json").read_text(encoding="utf-8"))
    assert recorded["training"]["init_from"] == str(tmp_path / "first")
    (line,) = [text for text in said if text.startswith("weights of")]
    assert not any("begun afresh" in text for text in said)
    weights, _ = started(tmp_path / "second")
    expected = foci.load(tmp_path / "first").model.state_dict()
    assert weights.keys() == expected.keys()
    # A counter of steps, by which a schedule goes, starts anew.
    learned = [name for name, value in expected.items() if value.is_floating_point()]
    assert all(torch.equal(weights[name], expected[name]) for name in learned), line


def test_words_and_labels_are_matched_by_name(tmp_path):
    """Another vocabulary, and labels in another order: rows must follow their names."""
    names = {"entailment": "c", "neutral": "a", "contradiction": "b"}

    def write(name, pairs, labels):
        lines = [json.dumps({**pair._asdict(), "label": labels[pair.label]}) for pair in pairs]
        (tmp_path / name).write_text("\n".join(lines), encoding="utf-8")
        return {"path": str(tmp_path / name), "batch_size": 24}

    first = write("1.jsonl", hypernym_pairs(60), {"entailment": "a", "neutral": "b", "contradiction": "c"})
    second = write("2.jsonl", hypernym_pairs(30, seed=5), names | {"neutral": "d"})
    train("entail", tmp_path / "first", data=first, training__max_steps=2)
    train("entail", tmp_path / "second", data=second, training__max_steps=1,
          training__init_from=str(tmp_path / "first"))  # fmt: skip
    old, new = foci.load(tmp_path / "first"), foci.load(tmp_path / "second")
    weights, said = started(tmp_path / "second")
    before = old.model.state_dict()
    assert old.assets.labels == ("a", "b", "c")
    assert new.assets.labels == ("b", "c", "d")
    torch.testing.assert_close(weights["output.bias"][:2], before["output.bias"][1:])
    torch.testing.assert_close(weights["output.weight"][:2], before["output.weight"][1:])
    assert not torch.equal(weights["output.bias"][2], before["output.bias"][2])
    embedding, previous = weights["inputs.embedding.weight"], before["inputs.embedding.weight"]
    common = [word for word in new.assets.vocabulary.words if word in old.assets.vocabulary]
    assert len(common) > 10
    assert [new.assets.vocabulary.words.index(w) for w in common] != [
        old.assets.vocabulary.words.index(w) for w in common
    ]
    for word in common:
        (here,), (there,) = new.assets.vocabulary.ids([word]), old.assets.vocabulary.ids([word])
        torch.testing.assert_close(embedding[here], previous[there])
    assert "by the names of its rows" in said[0]


def test_every_axis_with_names_is_matched():
    own, given = torch.zeros(3, 2, 3), torch.arange(24.0).reshape(4, 2, 3)
    rows = _copy(own, given, (("x", "b", "a"), None, None), (("a", "b", "c", "d"), None, None))
    assert rows == 12
    assert torch.equal(own, torch.stack([torch.zeros(2, 3), given[1], given[0]]))
    square, taken = torch.zeros(2, 2), torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert _copy(square, taken, (("b", "a"), ("b", "a")), (("a", "b"), ("a", "b"))) == 4
    assert square.tolist() == [[4, 3], [2, 1]]
    assert _copy(torch.zeros(2, 2), torch.zeros(2, 3), (None, None), (None, None)) is None
    assert _copy(torch.zeros(2), torch.zeros(2, 3), (None,), (None, None)) is None


def test_what_does_not_fit_is_begun_afresh_and_said(tmp_path):
    train("tag", tmp_path / "first", training__max_steps=1)
    said = []
    changes = {"model__spelling_dim": 20, "training__init_from": str(tmp_path / "first")}
    train("tag", tmp_path / "second", said.append, training__max_steps=1, **changes)
    (line,) = [text for text in said if "begun afresh" in text]
    assert "spelling.conv.weight (is float32 (32, 16, 3) there, float32 (20, 16, 3) here)" in line
    train("generate", tmp_path / "g1", training__max_steps=1)
    other = {"kind": "recurrent", "preset": "small", "embedding_dim": 3, "hidden_dim": 5}
    with pytest.raises(ConfigError, match="none of the weights of .* fits this model"):
        train("generate", tmp_path / "g2", training__init_from=str(tmp_path / "g1"), model=other)
    assert not (tmp_path / "g2").exists()


def test_a_wrong_folder_or_another_task_leaves_no_folder(tmp_path):
    train("memorize", tmp_path / "memory", training__max_steps=1)
    (tmp_path / "empty").mkdir()
    for source, kind, message in (
        (tmp_path / "none", CheckpointError, "is no run"),
        (tmp_path / "empty", CheckpointError, "is no run"),
        (tmp_path / "memory", ConfigError, "is a run of memorize, expected one of entail"),
    ):
        with pytest.raises(kind, match=message):
            train("entail", tmp_path / "run", training__init_from=str(source))
        assert not (tmp_path / "run").exists()


def test_another_vocabulary_that_a_task_cannot_match_is_an_error(tmp_path, monkeypatch):
    train("classify", tmp_path / "first", training__max_steps=1)
    kind = find("classify")
    monkeypatch.setattr(kind, "named_axes", lambda self, assets: None)
    train("classify", tmp_path / "same", training__max_steps=1, training__init_from=str(tmp_path / "first"))
    with pytest.raises(ConfigError, match="has another vocabulary or other labels, which classify cannot match"):
        train("classify", tmp_path / "run", data__builtin=70, training__init_from=str(tmp_path / "first"))
    assert not (tmp_path / "run").exists()


def test_resuming_is_bit_exact_and_needs_the_other_run_no_more(tmp_path):
    train("entail", tmp_path / "first", training__max_steps=2, training__seed=3)
    changes = {"training__init_from": str(tmp_path / "first"), "model__dropout": 0.3}
    train("entail", tmp_path / "whole", training__max_steps=6, **changes)
    train("entail", tmp_path / "parts", training__max_steps=3, **changes)
    train("entail", tmp_path / "fresh", training__max_steps=6, model__dropout=0.3)
    (tmp_path / "first").rename(tmp_path / "gone")
    foci.train("entail", {"training": {"max_steps": 6}}, out=tmp_path / "parts", resume=True, log=lambda text: None)
    whole, parts, fresh = (
        foci.load(tmp_path / name, checkpoint="last").model.state_dict() for name in ("whole", "parts", "fresh")
    )
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    assert not all(torch.equal(whole[name], fresh[name]) for name in whole)
    with pytest.raises(ConfigError, match=r"training\.init_from is .*, but the run was begun with"):
        foci.train("entail", {"training": {"init_from": str(tmp_path / "gone")}}, out=tmp_path / "parts", resume=True)


def test_the_flag(tmp_path, capsys):
    train("memorize", tmp_path / "first", training__max_steps=1)
    command = ["train", "memorize", "--init-from", str(tmp_path / "first"), "--out", str(tmp_path / "run")]
    changes = [f"{table}.{name}={configs.to_toml(value)}" for table, values in find("memorize").Config.smallest.items()
               for name, value in values.items()]  # fmt: skip
    assert foci_cli.main([*command, *(part for change in changes for part in ("--set", change))]) == 0
    assert foci.load(tmp_path / "run").config.training.init_from == str(tmp_path / "first")
    assert foci_cli.main([*command[:-1], str(tmp_path / "other"), "--init-from", str(tmp_path / "none")]) != 0
    assert not (tmp_path / "other").exists()
    capsys.readouterr()
