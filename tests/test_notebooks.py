"""The notebooks in examples/: each is executed by a kernel of its own, as a reader would, and shows what it says."""

import json
import os
from pathlib import Path

import pytest

import foci

EXAMPLES = Path(__file__).parent.parent / "examples"
NOTEBOOKS = sorted(path.name for path in EXAMPLES.glob("*.ipynb"))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Executes a notebook, and returns the outputs of its cells of code by their source."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    pytest.importorskip("transformers")

    def execute(book):
        book = nbformat.read(book, as_version=4) if isinstance(book, Path) else book
        nbformat.validate(book)
        folder = tmp_path_factory.mktemp("notebook")
        client = nbclient.NotebookClient(book, timeout=300, resources={"metadata": {"path": str(folder)}})
        sources = str(Path(foci.__file__).parent.parent)  # the kernel must run the foci that is tested
        client.execute(env={**os.environ, "PYTHONPATH": sources})
        assert not list(folder.iterdir())  # a notebook leaves nothing in the folder it is started in
        return {cell.source: cell.outputs for cell in book.cells if cell.cell_type == "code"}

    return execute


def shown(outputs):
    """The media types of a cell's value."""
    return [set(output.data) for output in outputs if output.output_type == "execute_result"]


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs_and_shows_figures_and_a_page(name, run):
    cells = run(EXAMPLES / name)
    metrics = [outputs for source, outputs in cells.items() if "plot(" in source.splitlines()[-1]]
    assert len(metrics) >= 1
    for outputs in metrics:
        assert shown(outputs) == [{"text/plain", "image/png"}]
    pages = [outputs for source, outputs in cells.items() if source.splitlines()[-1].endswith("trace")]
    assert len(pages) == 1
    assert shown(pages[0]) == [{"text/plain", "image/png", "text/html"}]
    (html,) = [output.data["text/html"] for output in pages[0] if output.output_type == "execute_result"]
    assert html.startswith('<iframe sandbox="allow-scripts allow-downloads" srcdoc="&lt;!doctype html&gt;')


def test_there_are_three_without_outputs():
    assert NOTEBOOKS == ["huggingface.ipynb", "mechanism.ipynb", "translate.ipynb"]
    for name in NOTEBOOKS:
        cells = json.loads((EXAMPLES / name).read_text(encoding="utf-8"))["cells"]
        assert all(not cell["outputs"] for cell in cells if cell["cell_type"] == "code")
        assert cells[0]["source"][0].startswith("# ")
