"""The demo: it runs to its end and leaves what it says; here with a few steps, so its translations are poor."""

import pytest

import foci_cli


@pytest.mark.slow
def test_the_demo_leaves_a_picture_and_a_page(tmp_path, capsys):
    arguments = ["--from", "en", "--to", "de", "--steps", "2", "--size", "60", "--out", str(tmp_path)]
    assert foci_cli.main(["demo", "translate", *arguments]) == 0
    told = capsys.readouterr().out
    assert (tmp_path / "alignment.png").read_bytes().startswith(b"\x89PNG")
    assert "<!doctype html>" in (tmp_path / "alignment.html").read_text(encoding="utf-8").lower()
    assert str(tmp_path / "alignment.html") in told
    assert "translated exactly" in told
    assert foci_cli.main(["demo", "translate", *arguments]) == 0  # an earlier demo is replaced


def test_an_unknown_language_is_told(tmp_path, capsys):
    assert foci_cli.main(["demo", "translate", "--to", "xx", "--out", str(tmp_path)]) != 0
    assert "xx" in capsys.readouterr().err
