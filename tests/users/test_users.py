"""Programs as engineers write them on `import foci` alone: they run, and type checkers find nothing in them.

They are also complete programs to start from, which README.md and docs/design.md name, and the pages of docs/ have
their examples from them: a comment above a block names the program, and `make docs` copies its parts.
"""

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PROGRAMS = sorted(path.stem for path in HERE.glob("*.py") if not path.stem.startswith("test_"))
QUICK = {"bilstm_crf", "own_parts", "own_training", "record_any_model"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in PROGRAMS]
)
@pytest.mark.filterwarnings("ignore::FutureWarning")  # torch's own, when it exports
def test_a_program_reaches_what_it_asserts(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(HERE / f"{name}.py"), run_name="__main__")


def test_there_are_twelve_and_each_is_short() -> None:
    assert len(PROGRAMS) == 12
    for name in PROGRAMS:
        lines = (HERE / f"{name}.py").read_text(encoding="utf-8").splitlines()
        assert len(lines) < 80, name
        assert "import foci" in lines


def run(command: list[str]) -> None:
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout[-3000:] + found.stderr[-3000:]


@pytest.mark.slow
def test_mypy_finds_nothing() -> None:
    run([sys.executable, "-m", "mypy", "--strict", *(str(HERE / f"{name}.py") for name in PROGRAMS)])


@pytest.mark.slow
def test_pyright_finds_nothing_but_the_mistakes_that_are_marked(tmp_path: Path) -> None:
    """Of the mistakes in tests/test_builders.py it sees each: there it reports a comment that hides nothing."""
    pytest.importorskip("basedpyright")
    settings = {
        "typeCheckingMode": "standard",
        "pythonVersion": "3.11",
        "include": [*(str(HERE / f"{name}.py") for name in PROGRAMS), str(ROOT / "tests" / "test_builders.py")],
        "extraPaths": [str(ROOT / "src")],
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    run([sys.executable, "-m", "basedpyright", "-p", str(tmp_path), "--pythonpath", sys.executable])
