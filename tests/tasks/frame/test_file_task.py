"""Near-duplicates whose files have other bytes: the held-out one stays, and the others are left out and counted."""

import json

import numpy as np
import pytest
from PIL import Image, PngImagePlugin

from foci.tasks.frame import config as configs
from foci.tasks.frame.task import find

soundfile = pytest.importorskip("soundfile")
COUNT = 80
FORMS = {"image": ("a.png", "b.bmp", "c.png"), "audio": ("a.wav", "b.flac")}


def write_forms(folder, kind, number):
    """Write one image or recording under several names, with different bytes; return the names."""
    random = np.random.default_rng(number)
    names = [str(folder / f"{number}-{form}") for form in FORMS[kind]]
    if kind == "image":
        image = Image.fromarray(random.integers(0, 255, (7, 5, 3), dtype="uint8"))
        noted = PngImagePlugin.PngInfo()
        noted.add_text("title", str(number))
        for name in names:
            image.save(name, **({"pnginfo": noted} if name.endswith("c.png") else {}))
    else:
        samples = random.integers(-9000, 9000, 4001, dtype="int16")
        for name in names:
            soundfile.write(name, samples, 16_000)
    return names


@pytest.mark.parametrize("task", ["vqa", "caption", "classify_images", "transcribe"])
def test_the_same_pixels_or_samples_in_other_files_are_on_one_side(task, tmp_path):
    kind, said = find(task), []
    asked = kind.inputs[0]
    others = [field.name for field in (*kind.inputs[1:], *kind.targets)]
    rows = [
        {**dict.fromkeys(others, "ab"[number % 2]), asked.name: name}
        for number in range(COUNT)
        for name in write_forms(tmp_path, asked.kind, number)
    ]
    path = tmp_path / "examples.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    tables = {"data": {"path": str(path), "valid_share": 0.1, "test_share": 0.2}}
    splits = kind(configs.configure(kind.Config, tables, "test")).read(said.append)
    found = [
        {getattr(one, asked.name).rsplit("/", 1)[-1].split("-")[0] for one in part}
        for part in (splits.train, splits.valid, splits.test)
    ]
    assert all(found)
    assert not found[0] & found[1] | found[0] & found[2] | found[1] & found[2]
    left_out = len(rows) - sum(len(list(part)) for part in splits)
    assert any(f"{left_out} of {len(rows)} {kind.noun} are left out: near-duplicates" in text for text in said)
