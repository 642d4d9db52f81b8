"""A trained run: loaded, called with one text and with many, evaluated, and shown on a page that needs no network."""

import re
from pathlib import Path

import foci

SETTINGS = {
    "data": {"path": "train.en", "target": "train.xx", "valid_share": 0.1},
    "model": {"preset": "tiny"},
    "training": {"max_steps": 120, "eval_every": 60, "device": "cpu"},
}
WORDS = {
    "the": "da",
    "a": "en",
    "man": "mun",
    "dog": "hun",
    "cat": "kit",
    "reads": "lis",
    "sees": "vid",
    "likes": "gil",
}


def write_data() -> None:
    """A foreign language that has another word for each word."""
    nouns = ("man", "dog", "cat")
    english = [
        f"{one} {who} {does} {other} {whom}"
        for one in ("the", "a")
        for other in ("the", "a")
        for who in nouns
        for whom in nouns
        for does in ("reads", "sees", "likes")
    ]
    foreign = [" ".join(WORDS[word] for word in sentence.split()) for sentence in english]
    Path("train.en").write_text("\n".join(english) + "\n", encoding="utf-8")
    Path("train.xx").write_text("\n".join(foreign) + "\n", encoding="utf-8")


def main() -> None:
    write_data()
    result = foci.train("translate", SETTINGS, out="run", log=lambda text: None)
    print(result.reason, result.best_value)
    run = foci.load("run")
    print(run)
    one = run("the man sees a dog")
    many = run(["the cat reads the man", "a dog likes a cat"], beam_size=3)
    print(one.output, "|", *(each.output for each in many))
    assert one.output == "da mun vid en hun"
    assert [each.output for each in many] == ["da kit lis da mun", "en hun gil en kit"]

    traced = run("the man sees a dog", trace=True)
    assert traced.output == one.output
    assert traced.trace is not None
    page = traced.trace.save_html("translation.html")
    assert not re.search(r"(src|href)=[\"']?http", page.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
