"""Deliberate mistakes in a copy of foci: a function is found by its name, an expression in it by its form.

A form is Python with placeholders, so that it outlives the names of variables and the layout of lines: ``_1`` to ``_9``
stand for any expression (the same one wherever the number is repeated), ``_`` for any at all, and ``*__`` in a call for
its other arguments. ``change(package, "masked_softmax", "check_mask(*__)", "~check_mask(*__)")`` inverts a mask.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

REST = "__"
Bindings = dict[str, object]


@cache
def functions_of(package: Path) -> list[tuple[str, Path]]:
    """Return the dotted names of all functions of a package, each with the file that defines it."""
    return [
        (name, path)
        for path in sorted(package.rglob("*.py"))
        for name, _ in _functions(
            ast.parse(path.read_bytes()), ".".join(path.relative_to(package).with_suffix("").parts)
        )
    ]


def find_symbol(package: Path, symbol: str) -> tuple[str, Path]:
    """Return the function whose dotted name ends like ``symbol``, as in ``masks.window``, and the file it is in."""
    found = [(name, path) for name, path in functions_of(package) if f".{name}".endswith(f".{symbol}")]
    assert len(found) == 1, f"{len(found)} functions are called {symbol}, expected 1: mend the mutant"
    return found[0]


def change(package: Path, symbol: str, good: str, bad: str) -> tuple[Path, str]:
    """Return the file of a function, and its text with the part that has the form ``good`` replaced by ``bad``."""
    name, path = find_symbol(package, symbol)
    tree = ast.parse(path.read_bytes())
    replacer = _Replacer(_parse(good), bad)
    replacer.visit(dict(_functions(tree, _module(package, path)))[name])
    assert replacer.count == 1, f"{name} has {good!r} {replacer.count} times, expected once: mend the mutant"
    return path, ast.unparse(ast.fix_missing_locations(tree))


def _module(package: Path, path: Path) -> str:
    return ".".join(path.relative_to(package).with_suffix("").parts)


def _functions(tree: ast.AST, prefix: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in ast.iter_child_nodes(tree):
        name = f"{prefix}.{node.name}" if isinstance(node, ast.FunctionDef | ast.ClassDef) else prefix
        if isinstance(node, ast.FunctionDef):
            yield name, node
        yield from _functions(node, name)


def _parse(form: str) -> ast.AST:
    """Parse a form: an expression, or a statement that is none."""
    (statement,) = ast.parse(form).body
    return statement.value if isinstance(statement, ast.Expr) else statement


class _Replacer(ast.NodeTransformer):
    """Replaces what has a form, and counts it."""

    def __init__(self, good: ast.AST, bad: str) -> None:
        self.good, self.bad, self.count = good, bad, 0

    def visit(self, node: ast.AST) -> ast.AST:
        bound: Bindings = {}
        if not _matches(self.good, node, bound):
            return self.generic_visit(node)
        self.count += 1
        filled = _Filler(bound).visit(_parse(self.bad))
        return ast.Expr(filled) if isinstance(node, ast.stmt) and isinstance(filled, ast.expr) else filled


class _Filler(ast.NodeTransformer):
    """Puts what the placeholders stand for into a form."""

    def __init__(self, bound: Bindings) -> None:
        self.bound = bound

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self.bound.get(node.id, node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if any(map(_is_rest, node.args)):
            args, keywords = self.bound[REST]
            node.args = [arg for arg in node.args if not _is_rest(arg)] + args
            node.keywords = keywords + node.keywords
        return self.generic_visit(node)


def _is_rest(node: ast.AST) -> bool:
    return isinstance(node, ast.Starred) and isinstance(node.value, ast.Name) and node.value.id == REST


def _matches(form: object, node: object, bound: Bindings) -> bool:
    """Whether a part of a program has a form; what its placeholders stand for is added to ``bound``."""
    if isinstance(form, ast.Name) and re.fullmatch(r"_\d?", form.id):
        if not isinstance(node, ast.expr):
            return False
        known = bound.setdefault(form.id, node) if form.id != "_" else node
        return known is node or ast.unparse(known) == ast.unparse(node)
    if isinstance(form, list):
        return isinstance(node, list) and len(form) == len(node) and all(_matches(*p, bound) for p in zip(form, node))
    if not isinstance(form, ast.AST):
        return form == node
    if type(form) is not type(node):
        return False
    if isinstance(form, ast.Call) and any(map(_is_rest, form.args)):
        return _matches_call(form, node, bound)
    fields = (name for name in form._fields if name not in ("ctx", "type_comment", "kind"))
    return all(_matches(getattr(form, name), getattr(node, name), bound) for name in fields)


def _matches_call(form: ast.Call, node: ast.Call, bound: Bindings) -> bool:
    """Compare the arguments that the form names, and bind the others."""
    first = [arg for arg in form.args if not _is_rest(arg)]
    wanted = {keyword.arg: keyword.value for keyword in form.keywords}
    given = {keyword.arg: keyword.value for keyword in node.keywords}
    bound[REST] = (node.args[len(first) :], [keyword for keyword in node.keywords if keyword.arg not in wanted])
    return (
        _matches(form.func, node.func, bound)
        and _matches(first, node.args[: len(first)], bound)
        and all(name in given and _matches(value, given[name], bound) for name, value in wanted.items())
    )
