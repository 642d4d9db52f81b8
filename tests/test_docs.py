"""The docs: every block of Python runs, the generated parts are up to date, and no link is dead."""

import importlib.util
import json
import re
from pathlib import Path
from statistics import fmean, stdev

import pytest

from foci.catalog import MECHANISMS
from foci.tasks import TASKS
from foci.tasks.frame.config import find_config

ROOT = Path(__file__).parent.parent
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
SLOW = {
    "docs/caption.md",
    "docs/compile-export.md",
    "docs/speech.md",
    "docs/translate.md",
    "docs/your-own-parts.md",
}
GENERATED = {"README.zh-CN.md", "docs/benchmarks.md", "docs/mechanisms.md", "docs/settings.md"}
"""Pages of another language, or made of the code's own texts."""


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", read(page), re.MULTILINE | re.DOTALL)


def table_of(page: str) -> str:
    return read(page).partition("<!-- mechanisms: start -->")[2].partition("<!-- mechanisms: end -->")[0]


@pytest.fixture(scope="module")
def generate():
    spec = importlib.util.spec_from_file_location("generate_docs", ROOT / "docs" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=pytest.mark.slow if page in SLOW else ()) for page in PAGES if blocks(page)]
)
def test_the_code_on_the_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    variables = {}
    for number, block in enumerate(blocks(page), start=1):
        exec(compile(block, f"{page}, block {number}", "exec"), variables)


def test_the_readmes_count_mechanisms_and_tasks():
    assert (len(MECHANISMS), len(TASKS)) == (29, 13)
    assert "29 mechanisms" in read("README.md")
    assert "thirteen tasks" in read("README.md")
    assert "29 种注意力机制" in read("README.zh-CN.md")
    assert "十三类任务" in read("README.zh-CN.md")


def test_the_pages_with_code_are_found():
    assert {"README.md", "README.zh-CN.md", "docs/masks.md", "docs/weights.md", "docs/compile-export.md"} <= set(PAGES)
    assert len(blocks("README.md")) == len(blocks("README.zh-CN.md")) == 2
    for page in PAGES:  # no block escapes the pattern above
        assert read(page).count("```python") == len(blocks(page)), page


SETTLED = {
    r"unless given": "default: …",
    r"so many|from 0 on": "n; zero-based",
    r"in (?:the )?place of": "instead of",
    r"trainings|a training(?! \w)": "training run",
    r"(?:is|are) (?:said|told)\b": "is logged, is reported",
    r"small letters": "lower case",
    r"(?<!notebook )cells?": "position, key, score, column",
    r"rightly": "correctly",
    r"figures? of (?:merit|the test|each)": "metric; a figure is a picture",
    r"as a task of the frame": "the … task",
    r"\w*(?:normalis|tokenis|optimis|summaris|recognis|memoris|neighbour|colour|behaviour)\w*": "American spelling",
    r"grey|catalogue": "American spelling",
}
"""Words that the docs do not use, and those of the field instead."""


@pytest.mark.parametrize("page", [page for page in PAGES if page not in GENERATED])
def test_the_words_are_settled(page):
    prose = re.sub(r"^```.*?^```$|^    .*?$|`[^`]*`|“[^”]*”", "", read(page), flags=re.MULTILINE | re.DOTALL)
    if page == "CHANGELOG.md":
        prose = prose.partition("### What is in it")[2]  # what was renamed stands before
    prose = re.sub(r"<!-- mechanisms: start -->.*<!-- mechanisms: end -->", "", prose, flags=re.DOTALL)
    for words, instead in SETTLED.items():
        found = re.findall(rf"\b(?:{words})\b", prose)
        assert not found, f"{page}: {sorted({*found})}, instead: {instead}"


def test_chinese_paragraphs_are_on_one_line():
    # A line break inside a sentence is rendered as a space.
    assert not re.findall(r"[\u4e00-\u9fff，、。；：]\n[\u4e00-\u9fff]", read("README.zh-CN.md"))


def test_the_generated_parts_are_up_to_date(generate):
    assert read("README.md") == generate.readme(read("README.md")), "run make docs"
    assert read("README.zh-CN.md") == generate.chinese_readme(read("README.zh-CN.md")), "run make docs"
    assert read("docs/kernels.md") == generate.kernels(read("docs/kernels.md")), "run make docs"
    assert read("docs/mechanisms.md") == generate.mechanisms(), "run make docs"
    assert read("src/foci/builders.py") == generate.overloads(read("src/foci/builders.py")), "run make docs"
    assert read("docs/settings.md") == generate.settings(), "run make docs"
    for task in TASKS:
        page = f"docs/{generate.PAGES.get(task, task)}.md"
        assert f"{find_config(task).promise.value:g}" in read(page).partition("<!-- demo: start -->")[2], page
        assert read(page) == generate.demo(read(page), task), "run make docs"


def test_examples_are_parts_of_the_programs_of_users(generate):
    for page in PAGES:
        assert read(page) == generate.examples(read(page)), f"{page}: run make docs"
    found = {name for page in PAGES for name in re.findall(r"<!-- from tests/users/(\w+)\.py: ", read(page))}
    assert found == {path.stem for path in ROOT.glob("tests/users/*.py") if not path.stem.startswith("test_")}


def test_the_chinese_table_has_the_same_mechanisms():
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([^|]+) \| [^|]+ \|$", table_of("README.zh-CN.md"), re.MULTILINE)
    assert {name: family for name, family, _ in rows} == {name: card.family for name, card in MECHANISMS.items()}
    assert len(rows) == len(MECHANISMS)


def test_both_readmes_run_the_same_code():
    def without_comments(page):
        return [re.sub(r" *#.*", "", block) for block in blocks(page)]

    assert without_comments("README.md") == without_comments("README.zh-CN.md")


@pytest.mark.parametrize("page", ["README.md", "README.zh-CN.md"])
def test_a_newcomer_sees_the_page_first_and_the_long_table_folded(page):
    text = read(page)
    assert re.search(r"!\[[^]]+\]\(([^)]+)\)", text)[1] == "docs/images/view-page.png"
    assert text.index("view-page.png") < text.index("```python") < text.index("98.0 %") < text.index("<details>")
    assert text.index("<details>") < text.index("<!-- mechanisms: start -->")
    assert text.index("<!-- mechanisms: end -->") < text.index("</details>")
    first = blocks(page)[0].split("\n\n")[-1]  # from the model to its page
    assert len([line for line in first.splitlines() if not line.startswith("trace.print")]) <= 5
    assert "save_html" in first


def test_the_results_of_the_readmes_are_those_of_the_recipes():
    def rows(recipe, name):
        lines = read(f"recipes/results/{recipe}.jsonl").splitlines()
        return [row for row in map(json.loads, lines) if row["name"] == name]

    def spread(found, metric):
        return f"{100 * fmean(row[metric] for row in found):.1f}", f"± {100 * stdev(row[metric] for row in found):.1f}"

    snips, sick = rows("snips", "BiLSTM, CRF"), rows("sick", "from scratch")
    (translated,), (speech,) = rows("small_translation", "all defaults"), rows("an4", "content and location, with CTC")
    (lstm,), ntm = rows("memorize", "copy, lstm"), rows("memorize", "copy, ntm")
    assert lstm["steps"] == ntm[0]["steps"]  # both have seen as many sequences
    wrong = {row["name"]: row["lengths"][1]["wrong_bits"] for row in (lstm, *ntm)}
    assert wrong["copy, ntm"] == 0.0
    metrics = {
        *spread(snips, "intent_accuracy"),
        *spread(sick, "accuracy"),
        f"BLEU {translated['bleu']:.1f}",
        f"WER {100 * speech['wer']:.1f} %",
        f"CER {100 * speech['cer']:.1f} %",
        f"{wrong['copy, lstm']:.0f}",
    }
    for page in ("README.md", "README.zh-CN.md"):
        table = read(page).split("## ")[3]
        assert {figure for figure in metrics if figure not in table} == set()
        intervals = re.findall(r"\[\d+\.\d, \d+\.\d\]", table)
        assert {cell for cell in table.splitlines()[4].strip("| ").split(" | ") if "[" not in cell} == set()
        assert {one for one in intervals if one not in read("docs/results.md")} == set()


def test_every_paper_has_a_link():
    for name, card in MECHANISMS.items():
        assert re.fullmatch(
            r"https://(arxiv.org/abs/\d{4}\.\d{4,5}|aclanthology.org/[\w-]+|doi.org/10\.\S+)", card.link
        ), name
        for page in ("README.md", "README.zh-CN.md"):
            assert f"[{card.citation}]({card.link})" in table_of(page), name


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#\s]+)", read(page)):
        if not target.startswith("http"):
            assert ((ROOT / page).parent / target).exists(), target


def test_every_promise_names_tests_that_exist():
    rows = re.findall(r"^\| (?!promise|---).*\|$", read("docs/reliability.md"), re.MULTILINE)
    assert rows
    for row in rows:
        tests = re.findall(r"`([\w/]+\.py)::(test_\w+)`", row)
        assert tests, row
        for file, test in tests:
            assert f"def {test}(" in read(f"tests/{file}"), f"{file}::{test}"


def test_the_picture_is_small():
    assert 10_000 < (ROOT / "docs" / "images" / "mechanisms.png").stat().st_size < 150_000
