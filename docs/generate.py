"""Writes what is generated: the READMEs' tables and picture, docs/mechanisms.md, docs/settings.md, results of demos,
examples from the programs of tests/users, and the overloads of `foci.build`.

Run it with `make docs`; a test fails when the texts are out of date.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Iterable
from pathlib import Path

import torch

from foci import catalog
from foci.functional.kernels import table
from foci.gallery import SCENES
from foci.settings import Setting, describe, field_docs, unions
from foci.tasks import TASKS
from foci.tasks.frame import config as configs
from foci.tasks.frame.task import find
from foci.viz import heatmap

ROOT = Path(__file__).parent.parent
START, END = "<!-- mechanisms: start -->\n", "<!-- mechanisms: end -->\n"
SHOWN = ("dot", "additive", "sparsemax", "hard", "local_m", "local_p")
"""The mechanisms of the README's picture, all on the same sentence."""
PAGES = {"classify": "documents", "classify_images": "images", "memorize": "memory", "transcribe": "speech"}
"""The pages of the tasks that have not the name of the task."""


def readme(text: str) -> str:
    """Return the README with a new table."""
    return _between(text, START, catalog.markdown(), END)


def kernels(text: str) -> str:
    """Return the page of fast paths with a new table."""
    return _between(text, "<!-- kernels: start -->\n", table.markdown(), "<!-- kernels: end -->\n")


def demo(text: str, task: str) -> str:
    """Return the page of a task with a new sentence about what its demo promises, and what `make demos` measured."""
    promise = configs.find_config(task).promise
    path = ROOT / "recipes" / "results" / "demos.jsonl"
    stored = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
    rows = sorted((row for row in stored if row["name"] == task), key=lambda row: row["seed"])
    sentence = (
        f"The demo promises {promise.metric} {promise.value:g} on data it has not seen, within {promise.tolerance:g}"
    )
    if rows:
        values = ", ".join(f"{row['metrics'][promise.metric]:.4g}" for row in rows)
        seeds, seconds = ", ".join(str(row["seed"]) for row in rows), max(row["seconds"] for row in rows)
        several = len(rows) > 1
        sentence += ", with any seed" if len(rows) > 2 else ""  # two seeds may agree by luck
        sentence += f". Measured: {values} with seed{'s' * several} {seeds}, in {seconds:.0f} s of one core"
        sentence += f" (`make demos`, {max(row['date'] for row in rows)})"
    return _between(text, "<!-- demo: start -->\n", f"{sentence}.", "<!-- demo: end -->\n")


def examples(text: str) -> str:
    """Return a page with the parts of the programs of tests/users that it names above a block.

    A part is a name that the program defines, ``imports``, or the body of ``main``. That is not run with the page (its
    block is marked py instead of python), since the program is.
    """

    def block(found: re.Match[str]) -> str:
        names = found["names"].split(", ")
        kind = "py" if "main" in names else "python"
        return f"{found['marker']}```{kind}\n{_parts(ROOT / found['program'], names)}\n```\n"

    marker = r"(?P<marker><!-- from (?P<program>tests/users/\w+\.py): (?P<names>[^>]+) -->\n)"
    return re.sub(marker + r"```py(?:thon)?\n.*?^```\n", block, text, flags=re.MULTILINE | re.DOTALL)


def _parts(program: Path, names: list[str]) -> str:
    """Return the source of what a program calls by these names, in their order."""
    source = program.read_text(encoding="utf-8")
    nodes: dict[str, list[ast.stmt]] = {}
    for node in ast.parse(source).body:
        for name in _names(node):
            nodes.setdefault(name, []).append(node)
    lines, text, after = source.splitlines(), "", ""
    for name in names:
        first, last = nodes[name][0], nodes[name][-1]
        begin = first.body[0] if isinstance(first, ast.FunctionDef) and name == "main" else first
        around = "\n\n\n" if isinstance(first, ast.ClassDef | ast.FunctionDef) else "\n\n"
        part = "\n".join(lines[begin.lineno - 1 : last.end_lineno])
        text += max(after, around if text else "") + textwrap.dedent(part)
        after = around
    return text


def _names(node: ast.stmt) -> list[str]:
    """Return what a statement of a program is called by."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return ["imports"]
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else []
    return [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]


def _between(text: str, start: str, middle: str, end: str) -> str:
    before, _, rest = text.partition(start)
    _, _, after = rest.partition(end)
    return f"{before}{start}\n{middle}\n{end}{after}"


def chinese_readme(text: str) -> str:
    """The Chinese README with the papers of its table made anew; what a mechanism does is written there by hand."""

    def with_paper(row: re.Match[str]) -> str:
        card = catalog.MECHANISMS[row[1]]
        return f"| `{row[1]}` | {card.family} | {row[2]} | [{card.citation}]({card.link}) |"

    return re.sub(r"^\| `(\w+)` \| \w+ \| ([^|]+) \|(?: [^|]* \|)?$", with_paper, text, flags=re.MULTILINE)


def overloads(text: str) -> str:
    """Return the module of `foci.build` with a new overload for each class, which has its arguments as keywords."""
    aliases, classes = _aliases(), {}
    for name, card in catalog.MECHANISMS.items():
        kind, fixed = getattr(card.builder, "func", card.builder), getattr(card.builder, "keywords", {})
        names, defaults = classes.setdefault(kind, ([], {*()}))
        names += [name, *aliases[name]]
        defaults.update(fixed)  # these differ between the rows of a class
    lines = []
    for kind, (names, fixed) in classes.items():
        arguments = [
            f"{one.name}: {one.annotation}"
            + ("" if one.default is one.empty else " = ..." if one.name in fixed else f" = {_code(one.default)}")
            for one in inspect.signature(kind).parameters.values()
        ]
        names = ", ".join(f'"{name}"' for name in names)
        arguments = [f"name: Literal[{names}]", "/", "*", *(one.replace(" ", "\xa0") for one in arguments)]
        wrapped = textwrap.indent(textwrap.fill(", ".join(arguments), 116, break_on_hyphens=False), "    ")
        lines += ["@overload", "def build(", wrapped.replace("\xa0", " "), f") -> {kind.__name__}: ..."]
    return _between(text, "# fmt: off\n", "\n".join(lines), "# fmt: on\n")


def _code(value: object) -> str:
    return json.dumps(value) if isinstance(value, str) else repr(value)


def _aliases() -> dict[str, list[str]]:
    """Return the aliases of each mechanism."""
    aliases: dict[str, list[str]] = {name: [] for name in catalog.MECHANISMS}
    for alias, name in catalog.ALIASES.items():
        aliases[name].append(alias)
    return aliases


def mechanisms() -> str:
    """Return the page of all mechanisms."""
    aliases = _aliases()
    parts = [HEAD]
    for name, card in catalog.MECHANISMS.items():
        example = ", ".join([f'"{name}"', catalog.as_code(card.example)])
        lines = [
            f"## {name}\n",
            f"{card.summary}\n",
            f"```text\n{card.equation}\n```\n",
            f"- Paper: {card.paper}",
            f"- Symbols: {card.names}",
            f"- Complexity: {card.complexity}",
            f"- Differs from the paper: {card.differs}",
            f"- Family: {card.family}. Build it with `foci.build({example})`.",
        ]
        if card.variants:
            shown = (f"{variant} (`{catalog.as_code(options)}`)" for variant, options in card.variants.items())
            lines.append(f"- Variants: {', '.join(shown)}.")
        if aliases[name]:
            lines.append(f"- Also called {', '.join(f'`{alias}`' for alias in aliases[name])}.")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def settings() -> str:
    """Return the page of all settings and options."""
    parts, chosen = [SETTINGS_HEAD], {}
    for name, row in TASKS.items():
        kind = find(name)
        parts.append(f"## {name}\n\n{row.summary}\n")
        parts.append(_settings_table(describe(configs.configure(kind.Config, {}, "docs"))))
        for title, options in (("predict", kind.Options), ("evaluate", kind.EvaluateOptions)):
            parts.append(f"### Options of `foci {title}`\n")
            parts.append(_settings_table(describe(options())))
        chosen |= {one.__mro__[1] if "preset" in field_docs(one) else one: one for one in unions(kind.Config)}
    parts.append("## Options of every kind\n")
    for one in chosen:
        parts.append(
            f"### {one.__name__.removesuffix('Options')}, kind = `{one.kind}`\n\n{one.__doc__.splitlines()[0]}\n"
        )
        parts.append(_settings_table(row for row in describe(one()) if row.path != "kind"))
    return "\n".join(parts)


def _settings_table(found: Iterable[Setting]) -> str:
    lines = ["| setting | default | meaning |", "|---|---|---|"]
    for one in found:
        default = "" if one.value is None else f"`{configs.to_toml(one.value)}`"
        lines.append(f"| `{one.path}` | {default} | {one.doc} |".replace("``", "`"))
    return "\n".join(lines) + "\n"


def picture(path: Path) -> None:
    """Draw several mechanisms on one sentence."""
    torch.manual_seed(0)
    scenes = [SCENES[name]() for name in SHOWN]
    # Of a scene with several panels the last is the mechanism itself.
    weights = [scene.weights.detach().reshape(-1, *scene.weights.shape[-2:])[-1] for scene in scenes]
    heatmap(
        torch.stack(weights),
        path,
        rows=scenes[0].rows,
        columns=scenes[0].columns,
        panels=SHOWN,
        across=3,
    )


HEAD = """\
# The mechanisms

Written by `make docs` from the docstrings of the code; `foci explain NAME` prints the same with an example in numbers,
and `foci gallery` draws them. Letters: B batch, L queries, S keys, D features, H heads, A hidden size of the score, V
size of the value. A variant is named by its options, added to those of the example; the contract tests run over all of
them.
"""


SETTINGS_HEAD = """\
# Settings

Written by `make docs` from the fields of the configurations, which hold each description once. `foci train TASK
--print-config` prints them as a TOML file. A setting is given in such a file, as `--set model.num_heads=8`, or in
Python as `foci.train(TASK, {"model": {"num_heads": 8}}, out=…)`; options of a call as flags, or as keywords of the
loaded run: `run(text, beam_size=5)`. The tables of a task have the options of its
default kind and preset; those of every other kind stand at the end, with the values they have without a preset.
"""


def main() -> None:
    """Write everything."""
    for name, make in (
        ("README.md", readme),
        ("README.zh-CN.md", chinese_readme),
        ("docs/kernels.md", kernels),
        ("src/foci/builders.py", overloads),
    ):
        page = ROOT / name
        page.write_text(make(page.read_text(encoding="utf-8")), encoding="utf-8")
    for task in TASKS:
        page = ROOT / "docs" / f"{PAGES.get(task, task)}.md"
        page.write_text(demo(page.read_text(encoding="utf-8"), task), encoding="utf-8")
    for page in (ROOT / "docs").glob("*.md"):
        page.write_text(examples(page.read_text(encoding="utf-8")), encoding="utf-8")
    (ROOT / "docs" / "mechanisms.md").write_text(mechanisms(), encoding="utf-8")
    (ROOT / "docs" / "settings.md").write_text(settings(), encoding="utf-8")
    picture(ROOT / "docs" / "images" / "mechanisms.png")


if __name__ == "__main__":
    main()
