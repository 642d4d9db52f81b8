"""The peers and their separate virtual environment, so that no peer's pins affect the project's.

torch is installed first, at the version all metrics are for, and kept by a constraints file; then each peer by its
name. A peer that cannot be installed is left out, which the report notes. This file needs the standard library only.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import json
import os
import subprocess
import sys
import types
import venv
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent

TORCH = "torch==2.13.0"

OURS = ("numpy", "jaxtyping", "matplotlib", "rich")
"""The dependencies of foci and of the report."""


@dataclass(frozen=True)
class Peer:
    """A package to compare with. ``alone`` leaves its own dependencies out, except for those named in ``needs``."""

    packages: tuple[str, ...]
    alone: bool = False
    needs: tuple[str, ...] = ()
    note: str = ""


PEERS = {
    "torch": Peer((), note="plain PyTorch: its own modules, and textbook forms written in benchmarks/"),
    "keras": Peer(("keras==3.15.1",), note="on the torch backend"),
    "x-transformers": Peer(("x-transformers==2.31.10",)),
    "transformers": Peer(("transformers==5.22.2",)),
    "pytorch-crf": Peer(("pytorch-crf==0.7.2",)),
    "local-attention": Peer(("local-attention==1.11.2",)),
    "speechbrain": Peer(
        ("speechbrain==1.1.2",),
        alone=True,
        needs=("hyperpyyaml", "joblib", "scipy", "sentencepiece", "huggingface_hub", "tqdm", "requests", "packaging"),
        note="with an empty module in place of torchaudio, which has no build for this torch and is not used here",
    ),
    "espnet": Peer(("espnet==202511",), alone=True, needs=("packaging", "scipy")),
    "ctranslate2": Peer(("ctranslate2==4.8.4",)),
    "eole": Peer(("eole==0.6.4",), alone=True),
    "flair": Peer(
        ("flair==0.15.1",),
        alone=True,
        needs=(
            *("boto3", "conllu<5", "deprecated", "ftfy", "gdown", "langdetect", "lxml", "more-itertools", "mpld3"),
            *("pptree", "pytorch-revgrad", "regex", "scikit-learn", "segtok", "sqlitedict", "tabulate", "tqdm"),
            *("wikipedia-api", "bioc", "python-dateutil"),
        ),
        note="beside transformers 5, of which it uses nothing here; an empty module stands for one that is not used",
    ),
}


VIEWERS = {
    "bertviz": Peer(
        ("bertviz==1.4.1", "mpld3==0.5.12", "nbclassic==1.3.3"),
        alone=True,
        needs=("tqdm", "regex", "requests", "IPython", "boto3", "sentencepiece"),
        note="its pages load scripts from the network; here d3 comes from mpld3, jQuery and RequireJS from nbclassic",
    ),
    "circuitsvis": Peer(("circuitsvis==1.43.3",), alone=True, needs=("importlib-metadata",)),
}
"""Packages whose pages `benchmarks.page` compares with."""


def folder() -> Path:
    """Return the folder of the environment: ``FOCI_BENCH_ENV``, or ``benchmarks/.venv``."""
    return Path(os.environ.get("FOCI_BENCH_ENV", FOLDER / ".venv"))


def python() -> str:
    """Return the environment's interpreter."""
    scripts = ("Scripts", "python.exe") if sys.platform == "win32" else ("bin", "python")
    return str(folder().joinpath(*scripts))


def install(
    log: Callable[[str], None],
    *,
    again: bool = False,
    peers: Mapping[str, Peer] = PEERS,
    stamp_name: str = "peers.json",
) -> dict[str, str]:
    """Create the environment and install each peer; return the failed peers with the last line of the error.

    A peer that failed is tried again only with ``again``.
    """
    stamp = folder() / stamp_name
    wanted = hashlib.sha256(
        repr([sys.version, TORCH, OURS, [(peer.packages, peer.alone, peer.needs) for peer in peers.values()]]).encode()
    ).hexdigest()
    if stamp.exists() and not again:
        known = json.loads(stamp.read_text())
        if known["wanted"] == wanted:
            failures: dict[str, str] = known["failed"]
            return failures
    log(f"installing the peers into {folder()} (once; some minutes)")
    if not Path(python()).exists():
        venv.create(folder(), with_pip=True)
    _pip(TORCH)
    held = subprocess.run(
        [python(), "-c", "import torch; print(torch.__version__)"], check=True, capture_output=True, text=True
    )
    constraints = folder() / "constraints.txt"
    constraints.write_text(f"torch=={held.stdout.strip()}\n")
    _pip("-c", str(constraints), *OURS)
    failed = {}
    for name, peer in peers.items():
        if not peer.packages:
            continue
        log(f"  {name}")
        try:
            if peer.needs:
                _pip("-c", str(constraints), *peer.needs)
            _pip("-c", str(constraints), *(["--no-deps"] if peer.alone else []), *peer.packages)
        except subprocess.CalledProcessError as error:
            failed[name] = (error.stderr or "pip failed").strip().splitlines()[-1]
            log(f"    could not be installed: {failed[name]}")
    stamp.write_text(json.dumps({"wanted": wanted, "failed": failed}))
    return failed


def stand_in_for_torchaudio() -> None:
    """Put an empty module in the place of torchaudio, which speechbrain imports and does not use here."""
    empty = types.ModuleType("torchaudio")
    empty.__spec__ = importlib.machinery.ModuleSpec("torchaudio", None)
    sys.modules.setdefault("torchaudio", empty)


def _pip(*arguments: str) -> None:
    command = [python(), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments]
    subprocess.run(command, check=True, capture_output=True, text=True)
