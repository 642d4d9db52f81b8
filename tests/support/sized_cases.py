"""Inputs of chosen sizes for every row that is compiled and exported with dynamic sizes."""

import torch
from cases import attend_inputs, map_input, names, pair_inputs, pool_input
from torch.export import Dim

from foci import masks


def mask_for(batch, keys):
    return masks.lengths([keys, *range(batch - 1)], keys)  # one row is full, one empty where there are two others


def attend_case(name, batch, queries, keys):
    return (*attend_inputs(name, batch, queries, keys), masks.keys(mask_for(batch, keys)))


def pool_case(name, batch, queries, keys):
    if name == "hierarchical":
        value = torch.stack([pool_input(name, batch, keys)] * queries, dim=1)
        return value, mask_for(batch, keys).unsqueeze(1).expand(-1, queries, -1).contiguous()
    return pool_input(name, batch, keys), mask_for(batch, keys)


def pair_case(name, batch, queries, keys):
    return (*pair_inputs(name, batch, keys, queries), mask_for(batch, keys), mask_for(batch, queries))


def map_case(name, batch, queries, keys):
    return (torch.nn.functional.interpolate(map_input(name, batch), (queries, keys)),)


CASES = {"attend": attend_case, "pool": pool_case, "pair": pair_case, "map": map_case}
ROWS = [(family, name) for family in CASES for name in names(family)]
MASKED_OR_NOT = [(*row, masked) for row in ROWS for masked in (True, False) if row[0] != "map" or not masked]
"""Every row with and without a mask; those of maps have none."""
NAMES = [f"{name}-{'masked' if masked else 'unmasked'}" for _, name, masked in MASKED_OR_NOT]

BATCH, QUERIES, KEYS = Dim("batch", max=31), Dim("queries", max=31), Dim("keys", max=31)
CELLS = {0: BATCH, 1: KEYS}
SHAPES = {
    "attend": ({0: BATCH, 1: QUERIES}, CELLS, CELLS, {0: BATCH, 2: KEYS}),
    "pool": (CELLS, CELLS),
    "pair": (CELLS, {0: BATCH, 1: QUERIES}, CELLS, {0: BATCH, 1: QUERIES}),
    "map": ({0: BATCH, 2: QUERIES, 3: KEYS},),
}
WORDS = {0: BATCH, 1: QUERIES, 2: KEYS}  # of sentences, which only the row "hierarchical" has
