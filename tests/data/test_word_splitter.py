"""How text becomes words: rules, text that is segmented already, and functions of the user's."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

import foci
from foci.data.word_splitter import WordSplitter, rule_of_texts
from foci.errors import ConfigError
from foci.tasks.frame.config import configure
from foci.tasks.frame.task import find

RULES = ("unicode", "treebank", "ud", "spaces", "characters")
TEXTS = (
    "It isn't 2-0: the U.S. won on 1996-12-06 (see www.a.org/b?c=1), Mr. O'Neil's e-mail@x.com said... :)",
    "2024年，我喜欢 iPhone 手机！",
    "वह हिन्दी में बात करता है।",
    "ภาษาไทยง่าย",
    "\u00a0no\u00a0break\u3000wide  ",
    "@user #tag &amp; n't '' -- ---",
    "",
)
SEGMENTED = ["我 喜欢 北京 的 秋天 。", "他们 在 图书馆 读书 。", "今天 天气 非常 好 ！"]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("text", TEXTS)
def test_words_cover_a_text_without_overlaps(rule, text):
    splitter = WordSplitter(rule)
    offsets = splitter.offsets(text)
    assert [text[start:end] for start, end in offsets] == splitter.words(text)
    covered = "".join(splitter.words(text))
    assert "".join(covered.split()) == "".join(text.split())
    assert [word for words in splitter.sentences(text) for word in words] == splitter.words(text) or rule == "spaces"


def test_treebank_words_are_those_of_column_files():
    words = WordSplitter("treebank").words
    assert words("EU didn't lose 2-0, Blackburn's U.S. coach said on 1996-12-06.") == [
        *("EU", "did", "n't", "lose", "2-0", ",", "Blackburn", "'s", "U.S.", "coach", "said", "on", "1996-12-06", ".")
    ]
    assert words("a well-known site: http://a.org/x.html.") == [
        "a",
        "well-known",
        "site",
        ":",
        "http://a.org/x.html",
        ".",
    ]
    assert WordSplitter("ud").words("a well-known 1-2") == ["a", "well", "-", "known", "1", "-", "2"]
    assert words("हिन्दी") == ["हिन्दी"]


def test_text_that_is_segmented_is_recognized():
    assert rule_of_texts(SEGMENTED) == "spaces"
    assert rule_of_texts(["ผม ชอบ กรุงเทพ มาก", "เขา อ่าน หนังสือ ที่ บ้าน"]) == "spaces"
    for natural in (
        ["我喜欢北京的秋天。", "今天天气非常好！ 真的很好。"],
        ["ผมชอบกรุงเทพมาก เขาอ่านหนังสือที่บ้าน"],
        ["I like it.", "我 爱 你"],
        ["저는 서울의 가을을 좋아합니다."],
        ["我 喜 欢 北 京 的 秋 天 。"],
        [],
    ):
        assert rule_of_texts(natural) == "unicode"


def rows(task):
    texts = [f"{text} {n}" for n in range(20) for text in SEGMENTED]
    return {
        "classify": [{"text": text, "label": str(n % 2)} for n, text in enumerate(texts)],
        "entail": [{"premise": text, "hypothesis": texts[0], "label": str(n % 2)} for n, text in enumerate(texts)],
        "cloze": [{"document": text, "question": f"XXXXX {text}", "candidates": "喜欢|图书馆|天气|好", "answer": "北京"
                   if "北京" in text else "图书馆" if "图书馆" in text else "天气"} for text in texts],
        "summarize": [{"source": text, "target": text} for text in texts],
    }[task]  # fmt: skip


@pytest.mark.parametrize("task", ["classify", "entail", "cloze", "summarize"])
def test_segmented_text_stays_segmented_in_every_task(task, tmp_path):
    path = tmp_path / "a.jsonl"
    rows_of = [row for row in rows(task) if task != "cloze" or row["answer"] in row["candidates"]]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows_of), encoding="utf-8")
    kind, said = find(task), []
    made = kind(configure(kind.Config, {"data": {"path": str(path)}}, "test"))
    splits = made.read(said.append)
    assert made.config.data.words == "spaces"
    assert any("data.words = spaces" in line for line in said)
    if task != "summarize":
        vocabulary = made.assets(splits, said.append).vocabulary
        assert [word in vocabulary for word in ("图书馆", "图")] == [True, False]


def test_the_rule_is_kept_in_the_run_and_a_text_without_spaces_is_noted(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows("classify")), encoding="utf-8")
    tables = {"data": {"path": str(path), "words": "auto"}, "training": {"max_steps": 2}, "model": {"preset": "tiny"}}
    foci.train("classify", tables, out=tmp_path / "run", log=lambda text: None)
    assert json.loads((tmp_path / "run" / "config.json").read_text())["data"]["words"] == "spaces"
    tables["training"]["max_steps"] = 3
    foci.train("classify", tables, out=tmp_path / "run", resume=True, log=lambda text: None)  # auto stays what it was
    predictor = foci.load(tmp_path / "run")
    natural, segmented = predictor.predict(["今天天气非常好，我喜欢北京的秋天。", SEGMENTED[0]])
    assert any("Segment it" in note for note in natural.details["notes"])
    assert not any("Segment it" in note for note in segmented.details.get("notes", []))


# ---- functions


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A run that was trained with a function of the user's, and the folder of its module."""
    folder = tmp_path_factory.mktemp("function")
    (folder / "own_words_here.py").write_text("def cut(text):\n    return text.split('|')\n")
    path = folder / "a.jsonl"
    path.write_text("".join(json.dumps({"text": f"a b|c {n}|", "label": str(n % 2)}) + "\n" for n in range(60)))
    tables = {"data": {"path": str(path), "words": "own_words_here:cut"}, "training": {"max_steps": 2}}
    sys.path.insert(0, str(folder))
    try:
        foci.train("classify", tables | {"model": {"preset": "tiny"}}, out=folder / "run", log=lambda text: None)
        assert "a b" in foci.load(folder / "run").assets.vocabulary
    finally:
        sys.path.remove(str(folder))
    return folder


@pytest.mark.slow  # processes of their own
@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({}, "FOCI_WORDS=own_words_here:cut"),
        ({"FOCI_WORDS": "own_words_here:cut"}, "cannot be imported"),
        ({"FOCI_WORDS": "x:y,own_words_here:cut", "PATHS": "."}, None),
        ({"FOCI_WORDS": "own_words_here:cut", "PATHS": "run"}, "lies in the folder of a run"),
    ],
)
def test_a_run_does_not_choose_what_is_executed(own, variables, said):
    if variables.get("PATHS") == "run":
        (own / "run" / "own_words_here.py").write_text("def cut(text):\n    return [text]\n")
    paths = [os.environ.get("PYTHONPATH", ""), *([str(own / variables["PATHS"])] if "PATHS" in variables else [])]
    code = "import foci, sys; print(foci.load(sys.argv[1]).predict(['a b|c'])[0].output)"
    done = subprocess.run(
        [sys.executable, "-c", code, str(own / "run")],
        env={**os.environ, **variables, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        cwd="/",
    )
    (own / "run" / "own_words_here.py").unlink(missing_ok=True)
    assert done.returncode == (0 if said is None else 1), done.stderr
    assert said is None or said in done.stderr


def test_a_function_may_be_named_in_settings_of_any_form(tmp_path, monkeypatch):
    (tmp_path / "other_words_here.py").write_text("def cut(text):\n    return text.split('|')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    data = find("classify").Config().data
    settings = {
        "data": replace(data, builtin=40, words="other_words_here:cut"),
        "model": {"preset": "tiny"},
        "training": {"max_steps": 1},
    }
    foci.train("classify", settings, out=tmp_path / "run", log=lambda text: None)


def test_nonsense_is_refused_by_name(tmp_path):
    for wrong in ("space", "jieba", "a:b:c", ":lcut", "os; x:y"):
        with pytest.raises(ConfigError, match=r"data\.words is .*jieba:lcut"):
            configure(find("classify").Config, {"data": {"words": wrong}}, "test")
    with pytest.raises(ConfigError, match=r"nosuchmodule:cut, which cannot be imported"):
        foci.train("classify", {"data": {"builtin": 40, "words": "nosuchmodule:cut"}}, out=tmp_path / "x", log=print)
    assert not (tmp_path / "x").exists()
