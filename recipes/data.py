"""Where the real data sets are."""

from __future__ import annotations

import hashlib
import lzma
import os
import random
import sys
from pathlib import Path


def folder(name: str) -> Path:
    """The data set of this name, in ``FOCI_DATA`` or in ``../shared/data`` beside the checkout."""
    root = Path(os.environ.get("FOCI_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not (root / name).is_dir():
        sys.exit(f"recipes: {root / name} is not there. Set FOCI_DATA to the folder that holds {name}.")
    return root / name


def tatoeba_splits(into: Path) -> dict[str, Path]:
    """cmn.txt as three TSV files; the English sentence alone decides which split a pair is in."""
    paths = {split: into / f"tatoeba.{split}.tsv" for split in ("train", "valid", "test")}
    if all(path.exists() for path in paths.values()):
        return paths
    lines: dict[str, list[str]] = {split: [] for split in paths}
    packed = (folder("tatoeba-cmn-eng") / "cmn.txt.xz").read_bytes()
    for line in lzma.decompress(packed).decode("utf-8").splitlines():
        english, chinese, *_ = line.split("\t")
        number = int(hashlib.sha256(english.encode()).hexdigest(), 16) % 28
        lines["test" if number == 0 else "valid" if number == 1 else "train"].append(f"{english}\t{chinese}\n")
    into.mkdir(parents=True, exist_ok=True)
    for split, path in paths.items():
        random.Random(0).shuffle(lines[split])
        path.write_text("".join(lines[split]), encoding="utf-8")
    return paths
