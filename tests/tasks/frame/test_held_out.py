"""The digests that a run keeps of its examples."""

import json

import numpy as np

import foci
from foci.tasks.frame.held_out import Fingerprint

SETTINGS = {
    "vocabulary": {"min_count": 1, "buckets": 4},
    "model": {"preset": "tiny", "embedding_dim": 4, "hidden_dim": 4},
    "training": {"max_steps": 2, "eval_every": 1},
}


def write(path, texts):
    rows = (json.dumps({"text": text, "label": "ab"[number % 2]}) + "\n" for number, text in enumerate(texts))
    path.write_text("".join(rows), encoding="utf-8")
    return str(path)


def test_a_resumed_run_keeps_what_it_began_with_and_says_what_changed(tmp_path):
    files = {name: write(tmp_path / f"{name}.jsonl", [f"{name} {n}" for n in range(8)]) for name in ("a", "b", "c")}
    data = {"path": files["a"], "valid": files["b"], "test": files["c"]}
    out, said = tmp_path / "run", []
    foci.train("classify", {**SETTINGS, "data": data}, out=out, log=said.append)
    assert not [text for text in said if "different examples" in text or "began with" in text]
    began = Fingerprint.read(out)
    assert [len(part) for part in began] == [8, 8, 8, 8]
    assert not np.isin(began.valid, began.train).any()
    write(tmp_path / "b.jsonl", ["A, 0", "a 1!", *(f"other {n}" for n in range(6))])
    foci.train("classify", {"training": {"max_steps": 3}}, out=out, resume=True, log=said.append)
    assert any("2 of 8 different examples to validate are also among those to train on" in text for text in said)
    assert any("the examples to validate are not those that the run began with" in text for text in said)
    assert not any("the examples to evaluate are not" in text for text in said)
    assert all(np.array_equal(one, other) for one, other in zip(began, Fingerprint.read(out)))
