"""Crops are the parts of the picture in the boxes."""

import numpy as np
from PIL import Image

import foci


def test_crops_are_the_parts_of_the_picture(run, pictures, tmp_path):
    found = foci.load(run)(str(pictures / "0.png"), threshold=0.0, crops=str(tmp_path / "crops"))
    whole = np.asarray(Image.open(pictures / "0.png"))
    assert len([*(tmp_path / "crops").iterdir()]) == len(found.details["objects"]) == 6
    for one in found.details["objects"]:
        left, top, right, bottom = one["box"]
        part = whole[int(top) : int(np.ceil(bottom)), int(left) : int(np.ceil(right))]
        assert (np.asarray(Image.open(one["crop"])) == part).all()
