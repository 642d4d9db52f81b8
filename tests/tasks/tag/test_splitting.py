"""The tagger learns how its file splits text, says how well it does, and takes words as they are where words come."""

import json

import pytest

import foci
import foci_cli
from foci.errors import ConfigError
from foci.tasks.tag.reader import read_tagged
from foci.tasks.tag.sentences import from_words
from foci.tasks.tag.splitting import agreement, learn_rule, said, written

ENGLISH = [
    "EU/ORG did/O n't/O win/O 2-0/O on/O 1996-12-06/O ./O",
    "Blackburn/PER 's/O coach/O left/O the/O U.S./LOC ,/O he/O said/O ./O",
    "He/O isn/O 't/O known/O in/O Baden-Baden/LOC ./O",
    "Ada/PER wo/O n't/O pay/O $/O 3.50/O (/O or/O more/O )/O ./O",
]
TINY = {
    "model": {"preset": "tiny"},
    "training": {"max_steps": 60, "eval_every": 30, "learning_rate": 0.02, "warmup": 5},
}


def column_file(path, sentences, separator=" "):
    rows = [[cell.rsplit("/", 1) for cell in sentence.split(" ")] for sentence in sentences]
    tagged = [[(word, label if label == "O" else f"B-{label}") for word, label in row] for row in rows]
    path.write_text(
        "\n\n".join("\n".join(separator.join(cell) for cell in row) for row in tagged) + "\n", encoding="utf-8"
    )
    return str(path)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run on a column file, and what its training said."""
    folder, lines = tmp_path_factory.mktemp("columns"), []
    numbered = [
        sentence.replace("EU/", f"EU{n}/").replace("3.50", f"{n}.50") for n in range(40) for sentence in ENGLISH
    ]
    path = column_file(folder / "train.txt", numbered)
    foci.train("tag", {**TINY, "data": {"path": path}}, out=folder / "run", log=lines.append)
    return folder / "run", lines


def words_of(prediction):
    return [word["text"] for word in prediction.details["words"]]


def test_the_rule_of_a_column_file_is_learned_said_and_used(run):
    folder, lines = run
    assert json.loads((folder / "config.json").read_text())["data"]["words"] == "treebank"
    assert any("rule treebank" in line and "% of the words" in line for line in lines)
    (found,) = foci.load(folder).predict(["EU7 didn't win 2-0 on 1996-12-06."])
    assert words_of(found) == ["EU7", "did", "n't", "win", "2-0", "on", "1996-12-06", "."]
    assert found.output.startswith("[ORG EU7] didn't")


def test_a_rule_that_was_chosen_is_not_blamed_on_the_data(run, tmp_path):
    """Where another rule fits to the file, training names it."""
    lines, data = [], json.loads((run[0] / "config.json").read_text())["data"]
    foci.train("tag", {**TINY, "data": {"path": data["path"], "words": "spaces"}}, out=tmp_path / "a", log=lines.append)
    (warning,) = [line for line in lines if line.startswith("warning: the rule spaces finds only")]
    assert "set data.words = auto for the rule treebank, which finds" in warning
    assert not any("no rule finds" in line for line in lines)


@pytest.mark.parametrize(
    "given",
    [
        ["EU7", "did", "n't", "U.S."],
        ("EU7", "did", "n't", "U.S."),
        {"words": ["EU7", "did", "n't", "U.S."]},
        {"tokens": ["EU7", "did", "n't", "U.S."]},
        {"text": "EU7  didn't U.S.", "words": ["EU7", "did", "n't", "U.S."]},
    ],
)
def test_words_are_taken_as_they_are_given(run, given):
    (found,) = foci.load(run[0]).predict([given])
    assert words_of(found) == ["EU7", "did", "n't", "U.S."]
    for word in found.details["words"]:
        assert found.inputs["text"][word["start"] : word["end"]] == word["text"]


@pytest.mark.parametrize("name", ["x.conll", "x.txt", "x.tsv", "x.conllu", "x.jsonl", "x", "words.conll"])
def test_a_file_of_words_is_recognized_by_predict(run, tmp_path, name, capsys):
    path = tmp_path / name
    if name == "x.conllu":
        lines = ["# text = EU7 won't", "1\tEU7\t_\tX", "2\two\t_\tX\t_\t_\t_\t_\t_\tSpaceAfter=No", "3\tn't\t_\tX", ""]
        path.write_text("\n".join([*lines, "1\tAda\t_\tX", ""]), encoding="utf-8")
    elif name == "x.jsonl":
        rows = [{"tokens": ["EU7", "wo", "n't"], "ner_tags": [3, 0, 0]}, {"words": ["Ada"]}]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif name == "words.conll":
        path.write_text("EU7\nwo\nn't\n\nAda\n")
    else:
        column_file(path, ["EU7/ORG wo/O n't/O", "Ada/PER"], "\t" if name == "x.tsv" else " ")
    assert foci_cli.main(["predict", str(run[0]), "--file", str(path), "--json"]) in (0, None)
    printed = capsys.readouterr()
    assert ("one word per line" in printed.err) == (name != "x.jsonl")
    found = [json.loads(line) for line in printed.out.splitlines()]
    assert [[word["text"] for word in one["words"]] for one in found] == [["EU7", "wo", "n't"], ["Ada"]]


def test_a_file_of_sentences_stays_one(run, tmp_path, capsys):
    path = tmp_path / "a.txt"
    path.write_text("EU won .\nAda left it .\n\nHe won .\nEU left .\n", encoding="utf-8")
    foci_cli.main(["predict", str(run[0]), "--file", str(path), "--json"])
    texts = [json.loads(line)["text"] for line in capsys.readouterr().out.splitlines()]
    assert texts == ["EU won .", "Ada left it .", "", "He won .", "EU left ."]


def test_wrong_words_are_refused(run):
    predictor = foci.load(run[0])
    with pytest.raises(ConfigError, match="'text' of entry 0 is a list, expected a text"):
        predictor.predict([[1, 2]])
    with pytest.raises(foci.errors.DataError, match="'zzz' does not stand in the text"):
        predictor.predict([{"text": "a b", "words": ["a", "zzz"]}])


# ---- rules


def sentences(*texts):
    return [from_words(text.split(" ")) for text in texts]


def test_characters_are_learned_from_a_file_of_characters(tmp_path):
    rows = [f"{character}\tO" for character in "2024年，在上海iPhone店。"]
    path = tmp_path / "a.txt"
    path.write_text(
        "\n".join(rows) + "\n\n" + "\n".join(f"{character}\tO" for character in "我们在那里") + "\n\n他\tB-PER\n"
    )
    found = read_tagged(path)
    assert found.rule == "characters"


def test_segmented_words_that_no_rule_finds_are_told():
    found = learn_rule(sentences("上海市 人民 政府 宣布 计划", "北京 大学 图书馆"))
    assert found.rule == "spaces"
    assert any("no rule finds the words" in line for line in said(found, given=True))


def test_space_after_decides_without_guessing():
    (sentence,) = sentences("It 's a well - known man")
    joined = sentence._replace(
        text="It's a well-known man", words=((0, 2), (2, 4), (5, 6), (7, 11), (11, 12), (12, 17), (18, 21))
    )
    assert learn_rule([joined]).rule == "ud"
    assert agreement("treebank", [joined]).words < agreement("ud", [joined]).words == 1


def test_written_text_has_its_words_where_it_says():
    for words in (["(", "a", ")", ",", '"', "b", '"', "!"], ["他", "说", "“", "好", "”", "。"], ["$", "3", "%"]):
        text, offsets = written(words)
        assert [text[start:end] for start, end in offsets] == words


def test_a_low_agreement_is_warned_of_in_training_and_prediction(tmp_path):
    odd = [f"a+b{n}/X ,/O jk/O lm/O no/O pq/O ./O !/O" for n in range(60)]
    lines = []
    path = column_file(tmp_path / "a.txt", odd)
    settings = {**TINY, "data": {"path": path}, "training": {**TINY["training"], "max_steps": 2}}
    foci.train("tag", settings, out=tmp_path / "run", log=lines.append)
    assert any(line.startswith("warning:") and "words of the training data" in line for line in lines)
    predictor = foci.load(tmp_path / "run")
    plain, given = predictor.predict(["a+b jk", ["a+b", "jk"]])
    assert any("of the words of the training data" in note for note in plain.details["notes"])
    assert not any("words of the training data" in note for note in given.details.get("notes", []))
