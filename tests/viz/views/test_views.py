"""The table of views: every row has its file, every file its row, and nothing is imported before it is needed."""

import subprocess
import sys
from pathlib import Path

import pytest

import foci.viz.views
from foci.errors import UnknownNameError
from foci.viz.selection import Selection
from foci.viz.trace import Trace
from foci.viz.views import VIEWS, choose, load, views_of

TRACE = Trace.from_arrays([[0.9, 0.1], [0.2, 0.8]], ["das", "Haus"], ["the", "house"])
FORMS = ("figure", "terminal", "page")


def test_each_row_has_its_file_and_each_file_its_row():
    folder = Path(foci.viz.views.__file__).parent
    assert sorted(VIEWS) == sorted(file.stem for file in folder.glob("*.py") if file.stem != "__init__")
    scripts = folder.parent / "page" / "static" / "script" / "views"
    own = {"boxes", "compare", "heads", "heat", "layers", "links", "words"}  # what the page itself shows
    assert {file.stem for file in scripts.glob("*.js")} - own <= set(views_of("page"))


@pytest.mark.parametrize("name", VIEWS)
def test_each_file_has_the_forms_of_its_row(name):
    for form in FORMS:
        modules = {module.__name__.rpartition(".")[2]: module for module in load(form)}
        assert hasattr(modules[name], form) if form in VIEWS[name] else name not in modules
    module = next(module for module in load(VIEWS[name][0]) if module.__name__.endswith(f".{name}"))
    assert tuple(form for form in FORMS if hasattr(module, form)) == VIEWS[name]
    assert module.fits(Selection(TRACE)) in (True, False)


def test_the_last_view_fits_everything():
    for form in ("figure", "terminal"):
        assert choose(Selection(TRACE, form=form)).__name__.endswith("heatmap")
        with pytest.raises(UnknownNameError, match="heatmap"):
            choose(Selection(TRACE, form=form), "heatmaps")


@pytest.mark.parametrize("module", ["foci.viz", "foci.viz.trace", "foci.tasks.translate.task"])
def test_a_trace_imports_no_renderer(module):
    code = (
        f"import sys, {module}; print(*(name for name in sys.modules if name.startswith(('foci.viz', 'matplotlib'))))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    rooms = ("foci.viz.figure", "foci.viz.page", "foci.viz.terminal", "foci.viz.views", "matplotlib")
    assert [name for name in loaded if name.startswith(rooms)] == []
