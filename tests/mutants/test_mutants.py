"""The contract suite must catch the field's usual mistakes: each is made in a copy of foci, and the suite must fail.

A mutant is a piece of a source file and what it is replaced by. The suite runs against the copy in its own process.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

MUTANTS = {
    "plain softmax: mask dropped": (
        "masks.py",
        "    if mask is None:\n        return torch.softmax(scores, dim=-1)",
        "    return torch.softmax(scores, dim=-1)",
    ),
    "plain softmax: mask inverted": (
        "masks.py",
        'mask = check_mask("softmax", mask,',
        'mask = ~check_mask("softmax", mask,',
    ),
    "plain softmax: plain -inf": ("masks.py", ".masked_fill(dead, 0.0)\n", "\n"),
    "plain softmax: wrong axis": (
        "masks.py",
        "return torch.softmax(filled, dim=-1)",
        "return torch.softmax(filled, dim=-2)",
    ),
    "additive: score vector dropped": (
        "mechanisms/scores/score.py",
        "return additive(query, key, self.vector, prepared)",
        "return additive(query, key, self.vector.detach() * 0 + 1, prepared)",
    ),
    "fused: mask dropped": (
        "functional/attend.py",
        "allowed = None if plainly_causal else combine(mask, window,",
        "allowed = None if plainly_causal else combine(None, window,",
    ),
    "fused: dead rows keep what they read": ("functional/attend.py", "output.masked_fill(~alive, 0.0)", "output"),
    "multi_head: mask not passed on": (
        "mechanisms/heads/multi_head.py",
        "value,\n                mask,\n                scale=scale,",
        "value,\n                None,\n                scale=scale,",
    ),
    "local: mask dropped": (
        "functional/windows.py",
        "return cells.Place(centre, start, mask, radius, sigma)",
        "return cells.Place(centre, start, None, radius, sigma)",
    ),
    "sparsemax: masked cells keep their weight": (
        "functional/sparse.py",
        "scores = scores.masked_fill(closed, -torch.inf)",
        "pass",
    ),
    "state kept on the module": (
        "mechanisms/attention.py",
        "        projected = self.score.project_query(query)\n",
        "        projected = self.projected = self.score.project_query(query)\n",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("mistake", MUTANTS)
def test_the_contract_suite_catches(mistake, tmp_path):
    file, good, bad = MUTANTS[mistake]
    shutil.copytree(ROOT / "src" / "foci", tmp_path / "foci", ignore=shutil.ignore_patterns("__pycache__"))
    target = tmp_path / "foci" / file
    text = target.read_text(encoding="utf-8")
    assert text.count(good) >= 1, f"{file} no longer has the line this mutant breaks: mend the mutant"
    target.write_text(text.replace(good, bad), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not slow", "-p", "no:cacheprovider", "-p", "no:xdist"]
    suite = subprocess.run(
        [*command, str(ROOT / "tests" / "contract")],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert suite.returncode == 1, suite.stdout[-2000:] + suite.stderr[-2000:]
    assert "FAILED tests/contract" in suite.stdout, suite.stdout[-2000:]


def test_the_suite_sees_the_copy(tmp_path):
    """Without a mistake the copy is the one that is imported: a mutant that survives really survived."""
    shutil.copytree(ROOT / "src" / "foci", tmp_path / "foci", ignore=shutil.ignore_patterns("__pycache__"))
    where = subprocess.run(
        [sys.executable, "-c", "import foci; print(foci.__file__)"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert where.stdout.startswith(str(tmp_path))
