import pytest

from foci.errors import ConfigError
from foci.tasks import TASKS
from foci.tasks.frame.config import find_config
from foci.tasks.frame.data_settings import HeldOutData
from foci_cli import main


def test_nothing_is_split_off_for_a_part_that_has_a_file():
    whole = HeldOutData(path="a.csv", valid_share=0.25, test_share=0.125, split_seed=7)
    assert whole.shares == {"valid_share": 0.25, "test_share": 0.125, "seed": 7}
    tested = HeldOutData(path="a.csv", test="b.csv", valid_share=0.25, split_seed=7)
    assert tested.shares == {"valid_share": 0.25, "test_share": 0.0, "seed": 7}
    validated = HeldOutData(path="a.csv", valid="b.csv", test_share=0.125)
    assert validated.shares == {"valid_share": 0.0, "test_share": 0.125, "seed": 0}


@pytest.mark.parametrize("part", ["valid", "test"])
def test_a_share_of_a_part_that_has_a_file_is_refused(part, tmp_path, capsys):
    given = ["--data", "a.csv", f"--{part}", "b.csv", "--set", f"data.{part}_share=0.3", "--out", str(tmp_path / "run")]
    assert main(["train", "entail", *given]) == 2
    said = capsys.readouterr().err
    assert f"data.{part}_share is 0.3, but {part} names such examples" in said
    HeldOutData(**{"path": "a.csv", part: "b.csv", f"{part}_share": 0.0})  # says what is so


def test_a_number_of_vectors_without_vectors_is_refused(tmp_path, capsys):
    assert main(["train", "tag", "--set", "vocabulary.vector_words=77", "--out", str(tmp_path / "run")]) == 2
    assert "vocabulary.vector_words is 77, but no file of vectors is named" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("task", "change", "need"),
    [
        ("entail", "training.momentum=0.9", "training.optimizer=muon"),
        ("entail", "training.min_lr_ratio=0.1", "training.schedule=cosine or linear"),
        ("entail", "training.model_dim=64", "training.schedule=noam"),
        ("transcribe", "spec_augment.time_width=7", "spec_augment.time_masks above 0"),
        ("transcribe", "spec_augment.feature_width=7", "spec_augment.feature_masks above 0"),
        ("transcribe", "ctc.weight=0.7 model.ctc=false", "both a decoder and model.ctc"),
        ("transcribe", "ctc.weight=0.7 model.decoder.kind=none", "both a decoder and model.ctc"),
    ],
)
def test_what_has_no_effect_without_another_setting_is_refused(task, change, need, tmp_path, capsys):
    given = [word for one in change.split() for word in ("--set", one)]
    assert main(["train", task, *given, "--out", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err
    assert "has no effect without" in said
    assert need in said
    assert main(["train", task, "--print-config", "--set", "training.schedule=constant"]) == 0
    (tmp_path / "config.toml").write_text(capsys.readouterr().out)
    assert main(["train", task, str(tmp_path / "config.toml"), "--print-config"]) == 0  # defaults are no mistake


def test_a_weight_of_intents_that_the_data_does_not_have_is_refused(tmp_path, capsys):
    (tmp_path / "a.conll").write_text("EU B-ORG\nrejects O\n\nParis B-LOC\nsleeps O\n\n" * 9)
    (tmp_path / "b.conll").write_text("Bonn B-LOC\nrejects O\nParis B-LOC\n")
    given = ["--data", str(tmp_path / "a.conll"), "--valid", str(tmp_path / "b.conll"), "--out", str(tmp_path / "run")]
    assert main(["train", "tag", *given, "--set", "tagging.intent_weight=3"]) == 2
    assert "tagging.intent_weight is 3, but no sentence has an intent" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_file_and_built_in_data_are_not_both_taken():
    with pytest.raises(ConfigError, match="path and builtin are both set, expected one of them"):
        HeldOutData(path="a.csv", builtin=9)


HELD_OUT = [task for task in TASKS if issubclass(type(find_config(task)().data), HeldOutData)]


@pytest.mark.parametrize("task", HELD_OUT)
@pytest.mark.parametrize("flag", ["--test", "--valid", "--set=data.test_share=0.3", "--set=data.encoding=gbk"])
def test_settings_of_files_are_refused_for_built_in_data(task, flag, tmp_path, capsys):
    (tmp_path / "file.tsv").write_text("a\tb\n")
    given = [flag] if "=" in flag else ["--set", f"data.{flag[2:]}={tmp_path / 'file.tsv'}"]
    for builtin in ([], ["--set", "data.builtin=40"]):
        assert main(["train", task, *given, *builtin, "--out", str(tmp_path / "run")]) == 2
        assert "but no data is named, and built-in data has parts and a form of its own" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_the_language_of_built_in_data_is_refused_for_files(capsys):
    assert main(["train", "tag", "--data", "a.conll", "--language", "de", "--out", "run"]) == 2
    assert "data.language is 'de', but it chooses among built-in data" in capsys.readouterr().err
