"""The table of tasks: unknown names, and tasks of other packages with all commands."""

import pytest

import foci
import foci_cli
from foci.errors import UnknownNameError
from foci.tasks import CALLED, TASKS, row_of


@pytest.mark.parametrize("name", CALLED)
def test_what_people_call_a_task_is_suggested(name):
    assert name not in TASKS
    assert CALLED[name] in TASKS
    for said in (name, name.upper(), name.replace("_", "-")):
        with pytest.raises(UnknownNameError, match=f"unknown task '{said}'. Did you mean '{CALLED[name]}'"):
            row_of(said)


def test_every_door_suggests_it(tmp_path, capsys):
    for command in ("train", "demo"):
        assert foci_cli.main([command, "ner"]) == 2
        assert "unknown task 'ner'. Did you mean 'tag'?" in capsys.readouterr().err
    with pytest.raises(UnknownNameError, match="Did you mean 'transcribe'"):
        foci.train("asr", out=tmp_path / "run")
