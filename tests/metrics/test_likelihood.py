"""Likelihood of texts: a smaller vocabulary does not make a text more likely, in every task that reports perplexity."""

import math
from itertools import product

import pytest

import foci
from foci.metrics.likelihood import Likelihood, TextSize, spelling_nats
from foci.tasks.frame import config as configs
from foci.tasks.frame.task import find

pytest.importorskip("tokenizers")

TEXTS = {
    "translate": lambda record: record["target"],
    "summarize": lambda record: " " + " ".join(record["target"].split()),
    "caption": None,
    "generate": lambda record: record["text"],
}
TINY = {"tokenizer": {"kind": "words", "size": 12}, "training": {"max_steps": 2, "eval_every": 2}}


def test_spellings_are_a_distribution_over_all_words():
    alphabet = "abc"
    words = ["".join(letters) for length in range(9) for letters in product(alphabet, repeat=length)]
    mass = sum(math.exp(-spelling_nats([word], alphabet)) for word in words)
    # Words of n characters have (3/5)^n · 1/5; one symbol of the five announces a character that is not known.
    assert mass == pytest.approx((1 - 0.6**9) / 2)
    strange = math.exp(-spelling_nats(["é"], alphabet))
    assert strange * 0x110000 == pytest.approx(1 / 25)


def test_without_unknown_tokens_bits_are_those_of_the_tokens():
    one = Likelihood(-math.log(2) * 12, 3, TextSize(bytes=8, characters=6))
    assert one.to_metrics() == {
        "perplexity": pytest.approx(16.0),
        "bits_per_character": pytest.approx(2.0),
        "bits_per_byte": pytest.approx(1.5),
        "unknown_tokens": 0,
    }
    assert one.notes() == {}


def trained(task, folder, **changes):
    tables = configs.put(find(task).Config.smallest, {f"{a}.{b}": v for a, t in changes.items() for b, v in t.items()})
    if task == "generate":
        tables["data"] = {**tables["data"], "max_characters": 2000}
    foci.train(task, tables, out=folder, log=lambda text: None)
    return foci.load(folder)


@pytest.mark.parametrize("task", TEXTS)
def test_unknown_words_are_spelled_and_counted(task, tmp_path):
    run = trained(task, tmp_path / "run", **TINY)
    records = list(run.held_out())[:6]
    found = run.evaluate(records)
    metrics = found.metrics
    assert metrics["unknown_tokens"] > 0
    share = found.notes["unknown"].split("tokens (")[1].split("%")[0]
    tokenizer = run.assets.target_tokenizer if task == "translate" else run.assets.tokenizer
    if task == "caption":
        texts = [" " + caption.lower() for record in records for caption in record["captions"]]
    else:
        texts = [TEXTS[task](record) for record in records]
    ends = 0 if task == "generate" else 1
    characters = scored = nats = unknown = 0
    alphabet = {letter for piece in tokenizer.pieces for letter in piece}
    longest = {"summarize": run.config.data.max_target if task == "summarize" else None, "caption": 12}.get(task)
    for number, text in enumerate(texts):
        encoding = tokenizer.encode(text)
        offsets = encoding.offsets[:longest]
        own = ()
        if task == "summarize":  # what stands in the source can be copied, and is no unknown word
            own = run.task.encode_sources(run.assets, [records[number]])[0].own
        pieces = [text[slice(*where)] for where, ids in zip(offsets, encoding.ids) if ids == 3]
        pieces = [piece for piece in pieces if piece not in own]
        unknown += len(pieces)
        scored += len(offsets) + ends
        characters += offsets[-1][1]
        for piece in pieces:
            costs = [math.log(len(alphabet) + 2) + (letter not in alphabet) * math.log(0x110000) for letter in piece]
            nats += sum(costs) + math.log(len(alphabet) + 2)
    assert metrics["unknown_tokens"] == unknown
    assert float(share) == pytest.approx(100 * unknown / scored, abs=0.06)
    nats += scored * math.log(metrics["perplexity"])
    assert metrics["bits_per_character"] == pytest.approx(nats / math.log(2) / characters, rel=1e-4)


def test_a_smaller_vocabulary_has_the_lower_perplexity_and_more_bits(tmp_path):
    found = {}
    for size in (200, 12):
        steps = {"max_steps": 60, "eval_every": 60}
        run = trained("translate", tmp_path / str(size), tokenizer={"kind": "words", "size": size}, training=steps)
        found[size] = run.evaluate([*run.held_out()]).metrics
    assert found[12]["perplexity"] < found[200]["perplexity"]
    assert found[12]["bits_per_character"] > found[200]["bits_per_character"]
    assert found[12]["bits_per_byte"] > found[200]["bits_per_byte"]
