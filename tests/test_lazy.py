"""Packages that import their names on first use: what type checkers read and what Python finds are the same."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import foci
from foci.catalog import MECHANISMS

PACKAGE = Path(foci.__file__).parent
LAZY = [
    ".".join(("foci", *path.parent.relative_to(PACKAGE).parts))
    for path in sorted(PACKAGE.rglob("__init__.py"))
    if "attach(" in path.read_text(encoding="utf-8")
]


def imports_for_type_checkers(package):
    """The names under ``if TYPE_CHECKING`` of a package, each with the module that it is imported from."""
    tree = ast.parse(Path(import_module(package).__file__).read_text(encoding="utf-8"))
    (checked,) = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    statements = [one for one in checked.body if isinstance(one, ast.ImportFrom)]
    assert statements, package
    return {alias.asname or alias.name: one.module for one in statements for alias in one.names}


def test_the_packages_are_found():
    assert {"foci", "foci.functional", "foci.metrics", "foci.models", "foci.layers", "foci.training"} <= {*LAZY}


@pytest.mark.parametrize("package", LAZY)
def test_type_checkers_read_what_is_imported(package):
    module = import_module(package)
    homes = imports_for_type_checkers(package)
    assert sorted(homes) == sorted(module.__all__)
    assert {*module.__all__} <= {*dir(module)}
    for name, home in homes.items():
        expected = import_module(f"{home}.{name}") if home == package else getattr(import_module(home), name)
        assert getattr(module, name) is expected, name


def test_a_module_needs_no_import_of_its_own_and_no_torch():
    code = "import sys, foci; foci.errors, foci.models.options.decoders, foci.tasks; assert 'torch' not in sys.modules"
    code += "; foci.functional.sparse.sparsemax, foci.metrics.spans, foci.viz.heatmap, foci.decoding.beam"
    code += "; foci.layers.transformer, foci.training.engine, foci.models.language_model.LanguageModel"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_unknown_name_suggests_the_nearest():
    code = "import foci; foci.attned"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "module 'foci' has no attribute 'attned'. Did you mean: 'attend'?" in found.stderr


def test_the_classes_of_the_catalog_are_public():
    classes = {getattr(card.builder, "func", card.builder) for card in MECHANISMS.values()}
    assert {one.__name__ for one in classes} <= {*foci.__all__}
    assert all(getattr(foci, one.__name__) is one for one in classes)
