"""A pytest plugin for the pass that checks the shapes in signatures (`make shapes`).

In that pass a tensor of the wrong shape never reaches the checks of foci: the annotation refuses it first, with an
error of its own. So where a test expects an error (inside ``with pytest.raises(…)``), an annotation's error will do as
well; anywhere else it is what this pass is there to find.
"""

import ast
from functools import cache
from pathlib import Path
from traceback import walk_tb

import pytest
from jaxtyping import TypeCheckError


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    try:
        return (yield)
    except TypeCheckError as error:
        lines = (line for frame, line in walk_tb(error.__traceback__) if frame.f_code.co_filename == str(item.path))
        if not any(line in block for line in lines for block in _blocks_that_expect_errors(item.path)):
            raise
        pytest.skip("refused by the annotations already")


@cache
def _blocks_that_expect_errors(path: Path) -> list[range]:
    """The lines of each ``with`` block of `pytest.raises`."""
    return [
        range(node.lineno, node.end_lineno + 1)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.With) and any("raises" in ast.unparse(part.context_expr) for part in node.items)
    ]
