"""The setting data.normalize: one way to write a text is as good as another, from the data to the predictions."""

import json
import unicodedata

import pytest

import foci
import foci.errors


def nfd(text):
    return unicodedata.normalize("NFD", text)


def run_of(task, settings, out, log=lambda text: None):
    foci.train(task, settings, out=out, log=log)
    return foci.load(out)


SHORT = {"max_steps": 4, "eval_every": 4, "warmup": 1}
WORDS = ["rất đẹp", "thật tuyệt", "quá dở", "tệ hại"]
LABELS = {"rất đẹp": "tốt", "thật tuyệt": "tốt", "quá dở": "xấu", "tệ hại": "xấu"}


def write_reviews(path):
    """Vietnamese reviews, every other one decomposed, with their classes."""
    rows = []
    for number in range(80):
        what = WORDS[number % 4]
        form = nfd if number % 3 else str
        rows.append(json.dumps({"text": form(f"Phim số {number} này {what}."), "label": form(LABELS[what])}))
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return str(path)


def test_two_ways_to_write_a_class_are_one_class(tmp_path):
    said = []
    settings = {"data": {"path": write_reviews(tmp_path / "reviews.jsonl")}, "training": SHORT}
    run = run_of("classify", settings, tmp_path / "run", said.append)
    assert list(run.assets.labels) == ["tốt", "xấu"]
    assert any("2 classes" in line for line in said)
    assert "53 of 80 documents are changed to the normal form nfc (data.normalize)" in said
    text = "Phim này rất đẹp."
    one, other = run.predict([text, nfd(text)])
    assert one.details["probabilities"] == other.details["probabilities"]
    assert other.inputs["text"] == nfd(text)  # what the user gave
    assert all(unicodedata.is_normalized("NFC", word) for word in run.assets.vocabulary.words)
    records = [{"text": form(text), "label": form("tốt")} for form in (str, nfd)]
    assert run.evaluate(records).metrics["documents"] == 2
    assert len({run.evaluate([record]).metrics["loss"] for record in records}) == 1


def test_by_choice_text_stays_as_it_is_or_loses_more(tmp_path):
    path = write_reviews(tmp_path / "reviews.jsonl")
    plain = run_of("classify", {"data": {"path": path, "normalize": "none"}, "training": SHORT}, tmp_path / "none")
    assert len(plain.assets.labels) == 4
    rows = [{"text": f"ﬁlm ５ {number} {what}", "label": what} for number in range(40) for what in ("ａ", "b")]
    (tmp_path / "wide.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    wide = run_of(
        "classify",
        {"data": {"path": str(tmp_path / "wide.jsonl"), "normalize": "nfkc"}, "training": SHORT},
        tmp_path / "nfkc",
    )
    assert list(wide.assets.labels) == ["a", "b"]
    assert {"film", "5"} <= {*wide.assets.vocabulary.words}
    with pytest.raises(foci.errors.ConfigError, match=r"normalize"):
        foci.train("classify", {"data": {"path": path, "normalize": "nfd"}}, out=tmp_path / "x", log=print)


def test_offsets_of_spans_refer_to_the_text_as_it_is_given(tmp_path):
    rows = []
    for number in range(60):
        form = nfd if number % 2 else str
        text, label = form(f"Chị {'Lê' if number % 4 else 'Tú'} đến Huế ngày {number}"), form("người")
        start = len(form("Chị "))
        rows.append({"text": text, "spans": [[start, start + len(form("Lê")), label]]})
    path = tmp_path / "spans.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    run = run_of("tag", {"data": {"path": str(path)}, "training": {**SHORT, "max_steps": 60}}, tmp_path / "run")
    assert list(run.assets.labels) == ["người"]
    assert all(unicodedata.is_normalized("NFC", word) for word in run.assets.vocabulary.words)
    text = "Chị Lê đến Huế"
    one, other = run.predict([text, nfd(text)])
    assert [span["probability"] for span in one.details["spans"]] == pytest.approx(
        [span["probability"] for span in other.details["spans"]], rel=1e-4
    )
    assert one.details["spans"]
    for span in other.details["spans"]:
        assert nfd(text)[span["start"] : span["end"]] in nfd(text).split()
    assert run.evaluate([{"text": nfd(text), "spans": [[4 + 2, 6 + 4, nfd("người")]]}]).metrics["sentences"] == 1


@pytest.mark.parametrize("stream", [False, True])
def test_translations_do_not_depend_on_normal_forms(tmp_path, stream):
    pairs = [(f"số {number % 7} đẹp", f"numéro {number % 7} âgé") for number in range(60)]
    for name, form in (("mixed", lambda text, at: nfd(text) if at % 2 else text), ("nfc", lambda text, at: text)):
        rows = ["\t".join(form(side, at) for side in pair) for at, pair in enumerate(pairs)]
        (tmp_path / f"{name}.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    small = {"encoder": {"embedding_dim": 8, "hidden_dim": 16}, "decoder": {"embedding_dim": 8, "hidden_dim": 16}}
    made = {}
    for name in ("mixed", "nfc"):
        data = {"path": str(tmp_path / f"{name}.tsv"), "valid": str(tmp_path / f"{name}.tsv"), "columns": [0, 1]}
        settings = {
            "data": {**data, "stream": stream, "batch_tokens": 400, "max_length": 60},
            "tokenizer": {"kind": "characters", "size": 80},
            "model": {"kind": "rnn", **small},
            "training": SHORT,
        }
        run = run_of("translate", settings, tmp_path / f"run-{name}-{stream}")
        made[name] = [one.output for one in run.predict([form("số 3 đẹp") for form in (str, nfd)])]
        assert made[name][0] == made[name][1]
    assert made["mixed"] == made["nfc"]


def test_generated_text_is_of_one_form(tmp_path):
    text = "".join(f"Tiếng Việt rất đẹp và rất khó, câu số {number}. " for number in range(200))
    for name, form in (("nfc", str), ("nfd", nfd)):
        (tmp_path / f"{name}.txt").write_text(form(text), encoding="utf-8")
    vocabularies = []
    for name in ("nfc", "nfd"):
        settings = {"data": {"path": str(tmp_path / f"{name}.txt"), "context": 16}, "training": SHORT}
        run = run_of("generate", settings, tmp_path / name)
        vocabularies.append(run.assets.tokenizer.pieces)
        scores = [run.evaluate([{"text": form(text[:200])}]).metrics["perplexity"] for form in (str, nfd)]
        assert scores[0] == scores[1]
    assert vocabularies[0] == vocabularies[1]
