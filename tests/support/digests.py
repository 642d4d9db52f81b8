"""Digests of what every task computes: final weights, metrics and predictions of small runs.

A change that must not change any number is made between two calls, on one machine::

    python tests/support/digests.py > before.json
    python tests/support/digests.py --compare before.json

Digests do not depend on the names of weights or metrics, so that names may change. They are not portable between
processors, and so are not stored.
"""

import argparse
import hashlib
import json
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file

import foci
from foci.tasks import TASKS
from foci.tasks.frame.task import find

SIZES = {"embedding_dim": 8, "hidden_dim": 16}
RNN = {"kind": "rnn", "encoder": SIZES, "decoder": SIZES}
VARIANTS = {
    "translate": {
        "transformer": {"model": {"kind": "transformer", "preset": "tiny"}},
        "convolutional": {"model": {"kind": "conv", "preset": "tiny"}},
        "luong": {"model": {**RNN, "decoder": {**SIZES, "input_feeding": True}, "attention": {"score": "general"}}},
        "bahdanau": {"model": {**RNN, "decoder": {**SIZES, "variant": "bahdanau"}, "attention": {"score": "additive"}}},
        "local": {"model": {**RNN, "attention": {"focus": "local_p", "radius": 2, "score": "dot"}}},
    },
    "summarize": {
        "pointer": {"model": {"preset": "pointer", **RNN}},
        "abs": {"model": {"kind": "abs", "preset": "tiny"}},
    },
    "caption": {
        "transformer": {"model": {"decoder": {"kind": "transformer"}, "preset": "tiny"}},
        "hard": {
            "model": {
                "preset": "tiny",
                "encoder": {"hidden_dim": 8},
                "decoder": {"hidden_dim": 16, "embedding_dim": 8},
                "attention": {"normalize": "sample"},
            }
        },
    },
    "entail": {"decomposable": {"model": {"kind": "decomposable", "preset": "tiny"}}},
    "generate": {
        "lstm": {"model": {"kind": "recurrent", "preset": "tiny"}},
        "history": {"model": {"kind": "history", "preset": "tiny"}},
        "adamw": {"training": {"optimizer": "adamw", "max_steps": 8, "eval_every": 4, "metrics_every": 1}},
    },
    "memorize": {"lstm": {"model": {"kind": "lstm", "preset": "tiny"}}},
}


def digest(parts):
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def weights_digest(run):
    last = sorted((run / "checkpoints").glob("step-*"))[-1]
    tensors = load_file(last / "model.safetensors").values()
    return digest(sorted(hashlib.sha256(one.float().numpy().tobytes()).hexdigest() for one in tensors))


def numbers(value):
    if isinstance(value, dict):
        return [number for one in value.values() for number in numbers(one)]
    if isinstance(value, list | tuple):
        return [number for one in value for number in numbers(one)]
    return [repr(value)] if isinstance(value, float | int) and not isinstance(value, bool) else []


def of_case(task, changes):
    """Train, evaluate and predict; return three digests."""
    tables = {**find(task).Config.smallest, **changes}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        foci.train(task, tables, out=out, log=lambda text: None)
        run = foci.load(out)
        measured = run.evaluate().metrics
        fields = run.task.inputs
        inputs = [{one.name: record[one.name] for one in fields} for record in run.held_out()[:5]]
        predictions = run.predict(inputs)
        shown = [repr(one.output) + repr(one.score) for one in predictions]
        for one in predictions:
            shown += sorted(numbers(dict(one.details)))
        return {
            "weights": weights_digest(out),
            "metrics": digest(sorted(numbers(dict(measured)))),
            "predictions": digest(shown),
        }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--compare", type=Path)
    parser.add_argument("tasks", nargs="*")
    given = parser.parse_args()
    torch.set_num_threads(1)
    found = {}
    for task in given.tasks or TASKS:
        for name, changes in {"": {}, **VARIANTS.get(task, {})}.items():
            case = f"{task} {name}".strip()
            found[case] = of_case(task, changes)
            print(case, found[case], file=sys.stderr, flush=True)
    if given.compare is None:
        print(json.dumps(found, indent=1))
        return 0
    before = json.loads(given.compare.read_text())
    other = [case for case in found if case in before and before[case] != found[case]]
    missing = [case for case in found if case not in before]
    print("different:", other or "none", "· not in the file:", missing or "none")
    return bool(other)


if __name__ == "__main__":
    sys.exit(main())
