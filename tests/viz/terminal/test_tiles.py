"""Small pictures beside each other."""

import numpy as np

from foci.viz.terminal.tiles import beside, coarser


def test_pictures_stand_beside_each_other_as_far_as_there_is_room():
    tall = ("猫", [("##", 2)] * 3, 2)
    wide = ("a dog", [("....", 4)], 5)
    assert beside([tall, wide], 9) == ["猫  a dog", "##  ....", "##", "##"]
    assert beside([tall, wide], 8) == ["猫", "##", "##", "##", "", "a dog", "...."]
    assert beside([], 8) == []


def test_a_map_gets_coarser_until_it_fits():
    shares = np.arange(6 * 10, dtype=np.float32).reshape(6, 10)
    assert coarser(shares, 10) is shares
    assert coarser(shares, 9).shape == (3, 5)
    assert coarser(shares, 4).shape == (2, 4)
