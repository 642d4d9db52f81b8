"""`python -m recipes.features [--out runs]`: features of all Flickr8k images, with time, speed and peak memory."""

from __future__ import annotations

import argparse
import json
import resource
import time
from pathlib import Path

import torch

from foci.data.images.features import cached_features
from foci.models.encoders.frozen import build_frozen_encoder
from recipes import data

ENCODER = "efficientnet_lite0"


def main() -> None:
    """Compute the features, and print the metrics as JSON."""
    parser = argparse.ArgumentParser(prog="python -m recipes.features", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs"), help="folder for the runs")
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    data.set_variables(options.out)
    data.unpack_flickr8k(options.out)
    names = sorted(str(path) for path in (options.out / "flickr8k-images").iterdir())
    before = _peak()
    started, processor = time.perf_counter(), time.process_time()
    features = cached_features(names, build_frozen_encoder(ENCODER), options.out / "flickr8k-features", log=print)
    seconds = time.perf_counter() - started
    metrics = {
        "images": len(features),
        "seconds": seconds,
        "processor_seconds": time.process_time() - processor,
        "images_per_second": len(features) / seconds,
        "peak_megabytes": _peak(),
        "peak_megabytes_before": before,
        "cache_megabytes": features.array.nbytes / 1e6,
        "threads": options.threads,
    }
    print(json.dumps(metrics, indent=1))


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
