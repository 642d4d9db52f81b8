"""The command line: what it prints, where, and with which exit code."""

import json
import os
import re
import subprocess
import sys
import textwrap
from importlib.metadata import entry_points

import pytest
import torch

import foci
from foci.catalog import ALIASES, MECHANISMS, as_code
from foci.cli.listing import short_reference
from foci.gallery import worked_example
from foci.tasks import TASKS
from foci_cli import COMMANDS, main

HELPED = [
    [],
    *([command] for command in COMMANDS),
    *([command, task] for command in ("train", "demo") for task in TASKS),
]
"""Everything that has a help page."""


def run(*arguments: str, **options) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, **options)


def squeezed(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def test_list_has_every_mechanism_on_a_line_of_its_own(capsys):
    assert main(["list"]) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split() == ["NAME", "FAMILY", "WHAT", "IT", "DOES", "PAPER"]
    rows = [re.split(r" {2,}", line) for line in lines]
    assert [(name, family) for name, family, *_ in rows] == [(n, card.family) for n, card in MECHANISMS.items()]
    assert [summary for _, _, summary, _ in rows] == [card.summary for card in MECHANISMS.values()]


def test_list_of_one_family(capsys):
    assert main(["list", "--family", "map"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]]
    assert names == [name for name, card in MECHANISMS.items() if card.family == "map"]


def test_list_on_a_terminal_is_a_table(capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "90")
    assert main(["list"]) == 0
    out = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out)  # without colors
    assert "name" in out
    assert "──" in out
    assert max(map(len, out.splitlines())) <= 90
    assert all(name in out for name in MECHANISMS)


def test_list_on_a_narrow_terminal_keeps_its_lines_readable(capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    assert main(["list"]) == 0
    out = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out)
    for name, card in MECHANISMS.items():
        assert f"{name}  {card.family}, " in out
        assert squeezed(card.summary) in squeezed(out)
    assert max(map(len, out.splitlines())) <= 60


@pytest.mark.parametrize(
    ("paper", "short"),
    [
        ("A Title (One, Two, Three, 2015), eq. 8", "One et al., 2015"),
        ("A Title (One et al., 2015), section 2; B (Four, 2020)", "One et al., 2015"),
        ("A Title of 1999, with more (One, Two, 2014), eq. 2", "One and Two, 2014"),
        ("A Title (One, 2016)", "One, 2016"),
        ("no year", "no year"),
    ],
)
def test_short_reference(paper, short):
    assert short_reference(paper) == short


def test_every_paper_has_a_short_reference():
    for name, card in MECHANISMS.items():
        assert re.fullmatch(r"[\w ]+( et al\.)?, (19|20)\d\d", short_reference(card.paper)), name


@pytest.mark.parametrize("name", MECHANISMS)
def test_explain_tells_everything_the_docstring_has(name, capsys):
    assert main(["explain", name]) == 0
    out, card = capsys.readouterr().out, MECHANISMS[name]
    assert out.startswith(f"{name}  ({card.family} family")
    assert textwrap.indent(card.equation, "  ") in out
    for text in (card.summary, card.paper, card.complexity, card.differs):
        assert text
        assert squeezed(text) in squeezed(out)
    for symbol in card.names.rstrip(".").split(" = ")[1:]:
        assert re.split(", ", symbol)[0] in out
    assert f"\n  {card.link}\n" in out
    assert not re.search(r" +$", out, re.MULTILINE)
    for variant, options in card.variants.items():
        assert re.search(rf"^  {variant} +{re.escape(as_code(options))}$", out, re.MULTILINE)


@pytest.mark.parametrize("name", MECHANISMS)
def test_the_code_that_explain_prints_computes_the_numbers_it_prints(name, capsys):
    assert main(["explain", name]) == 0
    out, card = capsys.readouterr().out, MECHANISMS[name]
    code = out.partition("\nCode\n")[2].partition("\nWhat this code computes")[0]
    variables = {}
    with torch.no_grad():
        exec(textwrap.dedent(code), variables)
    shown = "state.read_weights" if card.family == "memory" else "weights.dense()"
    tensor = eval(shown, variables)
    block = out.partition(f"\n{shown}  ({', '.join(map(str, tensor.shape))})\n")[2].partition("\n\n")[0]
    numbers = [float(number) for number in re.findall(r"-?\d+\.\d+", block)]
    matrix = tensor.squeeze()
    expected = (matrix if matrix.dim() < 3 else matrix.flatten(0, -3)[:2]).flatten()
    torch.testing.assert_close(torch.tensor(numbers), expected, atol=0.006, rtol=0)
    if card.family not in ("map", "memory"):  # the last two cells are masked; a CRF's cells are its rows
        masked = variables["masked"].weights.dense()
        assert ((masked.mT if name == "crf" else masked)[..., -2:] == 0).all()


def test_explain_takes_other_names(capsys):
    for alias in ("bahdanau", "Multi-Head"):
        assert main(["explain", alias]) == 0
    out = capsys.readouterr().out
    assert out.startswith("additive  (attend family; also called bahdanau, mlp)")
    assert "\nmulti_head  (attend family" in out
    assert set(ALIASES.values()) <= set(MECHANISMS)


def test_explain_leaves_the_random_numbers_alone(capsys):
    before = torch.get_rng_state()
    assert main(["explain", "hard"]) == 0
    assert torch.equal(torch.get_rng_state(), before)


def test_an_unknown_mechanism_lists_the_near_ones(capsys):
    assert main(["explain", "sparsemx"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("foci: unknown mechanism 'sparsemx'. Did you mean 'sparsemax'?")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments", [["explian", "dot"], ["list", "--family", "pol"], ["explain"], ["list", "--nope"]]
)
def test_a_wrong_call_is_told_without_a_traceback(arguments, capsys):
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "Error" in err
    assert "Traceback" not in err


def test_without_cyclopts_it_says_what_to_install(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "cyclopts", None)
    assert main(["list"]) == 1
    assert "pip install 'foci[cli]'" in capsys.readouterr().err


def test_without_matplotlib_it_says_what_to_install(capsys, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["gallery", "--out", str(tmp_path)]) == 1
    out, err = capsys.readouterr()
    assert (out, err) == ("", "foci: drawing needs matplotlib. Install it with: pip install 'foci[viz]'\n")


def test_a_folder_that_cannot_be_made_is_told_without_a_traceback(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    assert main(["gallery", "--out", str(tmp_path / "file" / "pictures")]) == 1
    err = capsys.readouterr().err
    assert err.startswith("foci: ")
    assert "file" in err


def test_help_shows_every_command(capsys):
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    words = squeezed(out.replace("│", " "))  # a long summary goes on in the next line of the box
    for name, (_, summary) in COMMANDS.items():
        assert f" {name} {summary} " in words
    assert main([]) == 0
    assert capsys.readouterr().out == out
    for name in COMMANDS:
        assert main([name, "--help"]) == 0
        assert f"Usage: foci {name}" in capsys.readouterr().out


ANSWERS = [["--version"], ["tasks"], *([*command, "--help"] for command in HELPED)]
WITHOUT_TORCH = {" ".join(arguments): arguments for arguments in ANSWERS}
CALLS = """
import contextlib, io, json, sys, foci_cli
for name, arguments in json.loads(sys.argv[1]).items():
    with contextlib.redirect_stdout(io.StringIO()) as out:
        code = foci_cli.main(arguments)
    print(json.dumps([name, code, out.getvalue(), "torch" in sys.modules]), flush=True)
"""
"""Calls one after the other, and prints of each its name, exit code, output, and whether torch is loaded by then."""


@pytest.fixture(scope="module")
def called_without_torch():
    """What each of the calls did, by its name; they share a process, which takes longer to start than they take."""
    finished = run("-c", CALLS, json.dumps(WITHOUT_TORCH))
    found = {name: what for name, *what in map(json.loads, finished.stdout.splitlines())}
    return found, finished.stderr


@pytest.mark.parametrize("name", WITHOUT_TORCH)
def test_help_and_version_do_not_wait_for_torch(name, called_without_torch):
    found, told = called_without_torch
    assert name in found, told
    code, out, has_torch = found[name]
    assert code == 0, told
    assert out
    assert not has_torch


@pytest.mark.parametrize("task", TASKS)
def test_the_schema_describes_every_setting(task, capsys):
    assert main(["train", task, "--print-schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert {"data", "model", "training"} <= schema["properties"].keys()
    tables = [table for table in (schema, *schema["$defs"].values()) if table["type"] == "object"]
    settings = [entry for table in tables for entry in table["properties"].values() if "$ref" not in entry]
    assert all(entry.get("description") or "oneOf" in entry for entry in settings)


def test_torch_is_told_to_wait_passively_before_it_is_loaded():
    environment = {key: value for key, value in os.environ.items() if key != "OMP_WAIT_POLICY"}
    code = "import os, sys, foci_cli; print(os.environ['OMP_WAIT_POLICY'], 'torch' in sys.modules)"
    assert run("-c", code, env=environment).stdout == "passive False\n"
    assert run("-c", code, env=environment | {"OMP_WAIT_POLICY": "active"}).stdout == "active False\n"


def test_importing_foci_does_not_import_torch_and_every_name_is_there():
    code = "import sys, foci; assert 'torch' not in sys.modules; print(foci.__version__, *dir(foci))"
    version, *names = run("-c", code).stdout.split()
    assert re.fullmatch(r"\d+\.\d+\.\d+", version)
    assert {"build", "attend", "load", "train", "record", "masks"} <= {*names}
    assert all(getattr(foci, name) is not None for name in foci.__all__)
    assert callable(foci.record)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        foci.nonsense  # noqa: B018


def test_loading_a_run_does_not_import_what_only_training_needs():
    code = "import sys, foci.tasks.frame.predictor, foci.tasks.translate.task; print(*sys.modules)"
    loaded = run("-c", code).stdout.split()
    assert "foci.training.checkpoint" in loaded
    assert not {"lightning_fabric", "torch.distributed.tensor", "foci.training.engine"} & {*loaded}


def test_tasks_are_listed(capsys):
    assert main(["tasks"]) == 0
    out = capsys.readouterr().out
    for name, row in TASKS.items():
        assert re.search(rf"^{name} +{re.escape(row.summary)}$", out, re.MULTILINE)


def test_the_program_is_installed():
    (script,) = entry_points(group="console_scripts", name="foci")
    assert script.value == "foci_cli:main"


@pytest.mark.slow
def test_as_a_program():
    listed = run("-m", "foci.cli", "list")
    assert (listed.returncode, listed.stderr) == (0, "")
    assert len(listed.stdout.splitlines()) == len(MECHANISMS) + 1
    explained = run("-m", "foci.cli", "explain", "crf")
    assert (explained.returncode, explained.stderr) == (0, "")
    assert "What this code computes" in explained.stdout
    wrong = run("-m", "foci.cli", "explain", "crff")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "Did you mean 'crf'" in wrong.stderr
    assert "Traceback" not in wrong.stderr


@pytest.mark.slow
def test_into_a_pipe_that_closes_and_a_terminal_without_greek():
    shell = f"{sys.executable} -m foci.cli explain additive | head -n 1"
    piped = subprocess.run(shell, shell=True, capture_output=True, text=True, check=False)
    assert piped.stdout == "additive  (attend family; also called bahdanau, mlp)\n"
    assert "Traceback" not in piped.stderr
    plain = run("-m", "foci.cli", "explain", "additive", env=os.environ | {"PYTHONIOENCODING": "ascii"})
    assert plain.returncode == 0, plain.stderr
    assert r"v\u1d40 tanh(W s + U h)" in plain.stdout


def test_numbers_are_laid_out_in_rows():
    assert list(worked_example.lines(torch.tensor([[1.0, -2.345]]))) == ["  1.00  -2.35"]
    assert list(worked_example.lines(torch.zeros(1, 3, 2, 1))) == ["  0.00   0.00"] * 3
    assert list(worked_example.lines(torch.zeros(4, 1, 2, 2))) == [
        "[0]", "  0.00   0.00", "  0.00   0.00", "[1]", "  0.00   0.00", "  0.00   0.00", "… and 2 more",
    ]  # fmt: skip
