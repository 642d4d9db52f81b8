"""Settings that suit the data."""

import json

from foci.tasks.detect.config import DetectConfig
from foci.tasks.detect.task import Detect
from foci.tasks.frame import config as configs
from foci.tasks.frame.task import silent


def jsonl(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return str(path)


def test_defaults_suit_the_data(pictures, tmp_path):
    objects = [{"label": "ring", "box": [n, n, n + 20, n + 10]} for n in range(30)]
    path = jsonl(tmp_path / "a.jsonl", [{"image": str(pictures / "1.png"), "objects": objects}])
    task = Detect(configs.configure(DetectConfig, {"data": {"path": path, "valid": path}}, "test"))
    chosen = task.suited(task.read(silent))
    assert chosen["model.num_queries"].value == 45
    assert "up to 30 objects" in chosen["model.num_queries"].reason
    assert chosen["data.image_size"].value == 96  # of 20 × 10 px, 14 are left of them, but no more than the image has
    assert chosen["training.max_steps"].value == 1500
    wide = Detect(configs.configure(DetectConfig, {"data": {"path": path, "valid": path, "image_size": 256}}, "test"))
    assert wide.suited(wide.read(silent))["model.encoder.stages"].value == (16, 32, 64, 96)
