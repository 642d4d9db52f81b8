"""Translation runs of two steps whose tokens are characters, to align words with."""

from pathlib import Path

import foci

SILENT = {"log": lambda text: None}
PAIRS = [
    ("the red house", "das rote Haus"),
    ("a house", "ein Haus"),
    ("the green tree falls", "der grüne Baum fällt um"),
]
KINDS = {
    "recurrent": {
        "kind": "rnn",
        "encoder": {"embedding_dim": 6, "hidden_dim": 10},
        "decoder": {"embedding_dim": 6, "hidden_dim": 10},
    },
    "transformer": {
        "kind": "transformer",
        "encoder": {"model_dim": 12, "num_heads": 2, "hidden_dim": 10, "num_layers": 1},
        "decoder": {"model_dim": 12, "num_heads": 2, "hidden_dim": 10, "num_layers": 3},
    },
    "convolutional": {
        "kind": "conv",
        "encoder": {"embedding_dim": 6, "layers": [[6, 3]]},
        "decoder": {"layers": [[6, 3], [6, 3]]},
    },
    "local_p": {
        "kind": "rnn",
        "encoder": {"embedding_dim": 6, "hidden_dim": 10},
        "decoder": {"embedding_dim": 6, "hidden_dim": 10, "input_feeding": False},
        "attention": {"focus": "local_p", "radius": 2},
    },
}


def train_runs(folder: Path, *names: str) -> Path:
    """Train a run of each of these kinds in a folder of its name; "back" is of the other direction."""
    (folder / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in PAIRS * 4), encoding="utf-8")
    (folder / "back.tsv").write_text("".join(f"{b}\t{a}\n" for a, b in PAIRS * 4), encoding="utf-8")
    for name in names:
        data = str(folder / ("back.tsv" if name == "back" else "pairs.tsv"))
        settings = {
            "data": {"path": data, "columns": (0, 1), "valid_share": 0.3, "test_share": 0.0, "batch_tokens": 100},
            "tokenizer": {"kind": "characters", "size": 60},
            "model": {"preset": "tiny", **KINDS["transformer" if name == "back" else name]},
            "training": {"max_steps": 2, "eval_every": None},
        }
        foci.train("translate", settings, out=folder / name, **SILENT)
    return folder
