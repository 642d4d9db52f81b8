"""Which examples a run has held out: kept in its folder, and compared with those that its data gives later."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from foci.errors import CheckpointError
from foci.files import write_text
from foci.tasks.frame.task import Splits

FILE = "held_out.json"
"""The file of a run with a short digest of each example that was held out, by part."""


class HeldOut(list[dict[str, Any]]):
    """Held-out examples; ``change`` says how they differ from those of the run, None where they do not."""

    change: str | None = None


def digests(examples: Iterable[Any]) -> list[str]:
    """Return a short digest of each different example, in order of the digests."""
    return sorted({_digest(one) for one in examples})


def _digest(example: Any) -> str:
    content = example._asdict() if hasattr(example, "_asdict") else example
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=5).hexdigest()


def keep(run: Path, splits: Splits) -> None:
    """Write which examples are held out, once: a resumed run keeps what it began with."""
    if not (run / FILE).exists():
        write_text(run / FILE, json.dumps({"valid": digests(splits.valid), "test": digests(splits.test)}))


def change(run: Path, splits: Splits) -> str | None:
    """Return how the examples to evaluate on differ from those that the run held out; None if they are the same.

    Runs of earlier versions have not kept them, so nothing is known of theirs.
    """
    part = "test" if splits.test else "valid"
    before = _read(run, part)
    if before is None:
        return None
    now = {*digests(splits.test or splits.valid)}
    new, missing = len(now - before), len(before - now)
    if not new and not missing:
        return None
    return (
        f"the data has changed since the training: of {len(now):,} held-out examples {new:,} are new (the run may have "
        f"been trained on them), and {missing:,} of its {len(before):,} are missing"
    )


def _read(run: Path, part: str) -> set[str] | None:
    path = run / FILE
    if not path.exists():
        return None
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: cannot be read as JSON ({error}). Restore the file, or remove it.") from error
    digests = kept.get(part) if isinstance(kept, Mapping) else None
    if not isinstance(digests, list) or not all(isinstance(one, str) for one in digests):
        raise CheckpointError(f"{path}: has no list of digests {part!r}. Restore the file, or remove it.")
    return {*digests}
