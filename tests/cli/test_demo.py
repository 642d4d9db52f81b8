"""The demos: they complete and write the files they name; here with a few steps, so their predictions are poor."""

import pytest

import foci_cli
from foci.tasks import TASKS

SMALL = {
    "translate": ["--phrasebook", "en-de", "--set", "data.phrasebook_size=60"],
    "classify": ["--planted", "60"],
    "tag": ["--carriers", "60"],
    "entail": ["--hypernyms", "60"],
    "caption": ["--drawn", "60"],
    "classify_images": ["--drawn", "60"],
    "vqa": ["--drawn", "60"],
    "transcribe": ["--morse", "24", "--set", "data.morse_words=1"],
    "memorise": ["--set", "data.max_length=2", "--set", "data.valid_sequences=2"],
}


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_a_demo_leaves_a_picture_and_a_page(task, tmp_path, capsys):
    arguments = [*SMALL.get(task, []), "--steps", "2", "--out", str(tmp_path)]
    assert foci_cli.main(["demo", task, *arguments]) == 0
    told = capsys.readouterr().out
    assert (tmp_path / "attention.png").read_bytes().startswith(b"\x89PNG")
    assert "<!doctype html>" in (tmp_path / "attention.html").read_text(encoding="utf-8").lower()
    assert str(tmp_path / "attention.html") in told
    assert f"Go on with: foci show {tmp_path / task}" in told
    assert foci_cli.main(["demo", task, *arguments]) == 0  # an earlier demo is replaced


def test_a_mistake_leaves_an_earlier_demo_alone(tmp_path, capsys):
    (tmp_path / "translate").mkdir()
    (tmp_path / "translate" / "config.json").write_text("{}")
    assert foci_cli.main(["demo", "translate", "--set", "model.kind=xx", "--out", str(tmp_path)]) != 0
    assert "'xx'" in capsys.readouterr().err
    assert (tmp_path / "translate" / "config.json").exists()
