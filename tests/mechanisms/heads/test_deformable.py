"""Deformable attention: the paper as loops over two levels, transformers as a peer, padding, points and their map."""

from types import SimpleNamespace

import pytest
import torch
from definitions import deformable
from torch import nn
from torch.autograd import gradcheck

import foci
from foci import masks
from foci.errors import ConfigError, ShapeError
from foci.mechanisms.heads import DeformableAttention

B, L, D, H, P = 2, 5, 6, 3, 2
LEVELS = [(3, 5), (2, 2)]
S = 3 * 5 + 2 * 2
SIZES = {"num_levels": 2, "num_points": P, "key_dim": 7}


def built(dtype=torch.float64, reference=2):
    torch.manual_seed(5)
    module = DeformableAttention(D, H, **SIZES)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5)
    inputs = (
        torch.randn(B, L, D, dtype=dtype),
        torch.randn(B, S, 7, dtype=dtype),
        torch.rand(B, L, reference, dtype=dtype),
    )
    return module.to(dtype), *inputs


def on_levels(*valid):
    """The mask of the cells of each level that lie in the readable rows and columns, ``(height, width)`` per row."""
    rows = []
    for sizes in valid:
        parts = [torch.zeros(size, dtype=torch.bool) for size in LEVELS]
        for part, (height, width) in zip(parts, sizes):
            part[:height, :width] = True
        rows.append(torch.cat([part.flatten() for part in parts]))
    return masks.keys(torch.stack(rows))


MASKS = {
    "none": lambda: None,
    "padded": lambda: on_levels([(3, 5), (2, 2)], [(2, 3), (1, 2)]),
    "per query": lambda: torch.rand(B, L, S, generator=torch.Generator().manual_seed(2)) > 0.4,
}


@pytest.mark.parametrize("size", [2, 4], ids=["point", "box"])
@pytest.mark.parametrize("kind", MASKS)
def test_two_levels_by_loops(kind, size):
    module, query, cells, reference = built(reference=size)
    mask = MASKS[kind]()
    readable = torch.ones(B, L, S, dtype=torch.bool) if mask is None else mask.expand(B, L, S)
    with torch.no_grad():
        output, weights = deformable(module, query, cells, readable, LEVELS, reference)
    read = module(query, cells, mask=mask, reference=reference, levels=LEVELS)
    torch.testing.assert_close(read.output, output, atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(read.weights.dense(), weights, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("kind", MASKS)
def test_the_map_reads_what_the_points_read(kind):
    module, query, cells, reference = built()
    read = module(query, cells, mask=MASKS[kind](), reference=reference, levels=LEVELS)
    values = module.value_layer(cells).unflatten(-1, (H, -1)).transpose(1, 2)
    by_map = module.output_layer((read.weights.dense() @ values).transpose(1, 2).flatten(2))
    torch.testing.assert_close(read.output, by_map, atol=1e-12, rtol=1e-12)
    assert (read.weights.dense().sum(dim=-1) <= 1 + 1e-12).all()
    assert read.weights.rows(2).equal(read.weights.dense()[..., 2, :])
    assert read.weights.heads(1).dense().equal(read.weights.dense()[:, 1])


@pytest.mark.parametrize("size", [2, 4], ids=["point", "box"])
@pytest.mark.parametrize("kind", MASKS)
def test_gradients_on_two_levels(kind, size):
    module, *inputs = built(reference=size)
    mask = MASKS[kind]()

    def run(query, cells, reference, *_):
        read = module(query, cells, mask=mask, reference=reference, levels=LEVELS)
        return read.output, read.weights.dense(), read.weights.points, read.weights.of_points

    assert gradcheck(run, [t.requires_grad_() for t in (*inputs, *module.parameters())], fast_mode=True)


@pytest.mark.parametrize("size", [2, 4], ids=["point", "box"])
def test_a_padded_picture_is_read_as_it_is_alone(size):
    """Whatever the padding holds."""
    module, query, cells, reference = built(reference=size)
    small = [(2, 3), (1, 2)]
    mask = on_levels(small, small)
    alone = module(query, cells[:, mask[0, 0]], reference=reference, levels=small)
    padded = module(query, cells.masked_fill(~mask.mT, torch.nan), mask=mask, reference=reference, levels=LEVELS)
    torch.testing.assert_close(padded.output, alone.output, atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(padded.weights.dense()[..., mask[0, 0]], alone.weights.dense(), atol=1e-12, rtol=1e-12)
    assert (padded.weights.dense()[..., ~mask[0, 0]] == 0).all()


def test_the_weight_of_a_point_that_cannot_be_read_is_not_given_to_others():
    module = DeformableAttention(4, 1, num_points=2)
    for parameter in module.parameters():
        nn.init.zeros_(parameter)
    with torch.no_grad():
        module.offset_layer.bias.copy_(torch.tensor([0.0, 0.0, 2.25, 0.0]))  # one at the reference, one to its right
    query, cells, reference = torch.zeros(1, 1, 4), torch.zeros(1, 12, 4), torch.tensor([[[1.5 / 4, 0.5]]])
    whole = module(query, cells, reference=reference, levels=[(3, 4)]).weights
    expected = torch.zeros(3, 4)
    expected[1, 1], expected[1, 3] = 0.5, 0.375  # a quarter of the second point lies outside
    torch.testing.assert_close(whole.dense().view(3, 4), expected)
    torch.testing.assert_close(whole.points.view(2, 2), torch.tensor([[1.5 / 4, 0.5], [3.75 / 4, 0.5]]))
    mask = torch.ones(1, 1, 12, dtype=torch.bool)
    mask[0, 0, 5] = False
    masked = module(query, cells, mask=mask, reference=reference, levels=[(3, 4)]).weights
    expected[1, 1] = 0.0
    torch.testing.assert_close(masked.dense().view(3, 4), expected)
    assert masked.of_points.equal(whole.of_points)
    assert whole.of_points.sum() == 1


def test_at_the_start_each_head_looks_in_a_direction_of_its_own():
    module = DeformableAttention(8, 4, num_points=3)
    points = module(torch.randn(1, 1, 8), torch.randn(1, 20, 8), reference=torch.full((1, 1, 2), 0.5), levels=[(4, 5)])
    steps = (points.weights.points[0, :, 0, 0] - 0.5) * torch.tensor([5.0, 4.0])
    expected = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]]).unsqueeze(1)
    torch.testing.assert_close(steps, expected * torch.tensor([1.0, 2.0, 3.0]).view(-1, 1), atol=1e-5, rtol=1e-5)


def test_at_the_start_the_last_point_of_each_head_lies_on_the_edge_of_its_box():
    module = DeformableAttention(8, 4, num_points=3)
    box = torch.tensor([[[0.375, 0.5, 0.25, 0.5]]])
    points = module(torch.randn(1, 1, 8), torch.randn(1, 20, 8), reference=box, levels=[(4, 5)]).weights.points
    edges = torch.tensor([[0.5, 0.5], [0.375, 0.75], [0.25, 0.5], [0.375, 0.25]])
    torch.testing.assert_close(points[0, :, 0, 0, -1], edges)


def test_what_does_not_fit_is_named():
    module, query, cells, reference = built()
    with pytest.raises(
        ConfigError, match=r"levels is None, expected num_levels = 2 sizes\. Pass levels=\[\(height, width\)"
    ):
        module(query, cells, reference=reference)
    with pytest.raises(ConfigError, match=r"levels is \[\(1, 19\)\], expected num_levels = 2"):
        module(query, cells, levels=[(1, S)])
    for levels in ([(3, 5), (2, 3)], [(19, 1), (0, 7)]):
        with pytest.raises(ShapeError, match="expected sizes that make up the 19 positions"):
            module(query, cells, levels=levels)
    with pytest.raises(
        ShapeError, match=r"shape \(2, 5, 6\), expected \(batch, 5, 2\)\. A box has a width .* \(batch, 5, 4\)"
    ):
        module(query, cells, reference=reference.repeat(1, 1, 3), levels=LEVELS)
    with pytest.raises(ShapeError, match=r"reference has shape \(2, 3, 4\), expected \(batch, 5, 4\)"):
        module(query, cells, reference=reference[:, :3].repeat(1, 1, 2), levels=LEVELS)
    with pytest.raises(ConfigError, match="model_dim is 7 with 3 heads, expected a multiple"):
        DeformableAttention(7, 3)
    with pytest.raises(ConfigError, match="keeps no state"):
        module(query, cells, None, None, torch.zeros(1), levels=LEVELS)


def test_edits_close_cells():
    module, query, cells, reference = built()
    with foci.edit(module) as edits:
        edits.knock_out(".")
        output, weights, _ = module(query, cells, reference=reference, levels=LEVELS)
    assert (weights.dense() == 0).all()
    torch.testing.assert_close(output, module.output_layer.bias.expand_as(output))


@pytest.mark.slow
def test_two_levels_compile_and_export():
    module, query, cells, reference = built(torch.float32)
    mask = MASKS["padded"]()

    class OnLevels(nn.Module):
        def __init__(self):
            super().__init__()
            self.module = module

        def forward(self, query, cells, reference, mask):
            read = self.module(query, cells, mask=mask, reference=reference, levels=LEVELS)
            return read.output, read.weights.dense(), read.weights.points

    model, inputs = OnLevels(), (query, cells, reference, mask)
    batch, queries = torch.export.Dim("batch", max=31), torch.export.Dim("queries", max=31)
    shapes = ({0: batch, 1: queries}, {0: batch}, {0: batch, 1: queries}, {0: batch})
    program = torch.export.export(model, inputs, dynamic_shapes=shapes)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*inputs), model(*inputs))
    others = (
        query[:, :3].repeat(2, 1, 1),
        cells.repeat(2, 1, 1),
        reference[:, :3].repeat(2, 1, 1),
        mask.repeat(2, 1, 1),
    )
    torch.testing.assert_close(program.module()(*others), model(*others))


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 4], ids=["point", "box"])
@pytest.mark.parametrize("padded", [False, True])
def test_as_in_transformers(padded, size):
    modeling = pytest.importorskip("transformers.models.deformable_detr.modeling_deformable_detr")
    torch.manual_seed(3)
    config = SimpleNamespace(d_model=16, num_feature_levels=3, disable_custom_kernels=True)
    theirs = modeling.DeformableDetrMultiscaleDeformableAttention(config, num_heads=4, n_points=3).double()
    ours = DeformableAttention(16, 4, num_levels=3, num_points=3).double()
    names = {
        "offset": "sampling_offsets",
        "weight": "attention_weights",
        "value": "value_proj",
        "output": "output_proj",
    }
    for name, other in names.items():
        for parameter in getattr(theirs, other).parameters():
            nn.init.normal_(parameter, std=0.3)
        getattr(ours, f"{name}_layer").load_state_dict(getattr(theirs, other).state_dict())
    levels, real = [(7, 11), (4, 6), (2, 3)], [(5, 8), (3, 4), (2, 2)]
    valid = torch.ones(2, sum(h * w for h, w in levels), dtype=torch.bool)
    ratios = torch.ones(2, 3, 2, dtype=torch.float64)  # x and y, as the authors' get_valid_ratio
    if padded:
        inside = [(torch.arange(h)[:, None] < a) & (torch.arange(w) < b) for (h, w), (a, b) in zip(levels, real)]
        valid[1] = torch.cat([part.flatten() for part in inside])
        ratios[1] = torch.tensor([[b / w, a / h] for (h, w), (a, b) in zip(levels, real)]).double()
    query, cells = torch.randn(2, 13, 16).double(), torch.randn(2, valid.shape[1], 16).double()
    reference = torch.rand(2, 13, size).double()
    expected, shares = theirs(
        query,
        attention_mask=valid,
        encoder_hidden_states=cells,
        reference_points=reference.unsqueeze(2) * ratios.unsqueeze(1).repeat(1, 1, 1, size // 2),
        spatial_shapes=torch.tensor(levels),
        spatial_shapes_list=levels,
    )
    read = ours(query, cells, mask=masks.keys(valid), reference=reference, levels=levels)
    torch.testing.assert_close(read.output, expected, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(read.weights.of_points.transpose(1, 2), shares, atol=1e-6, rtol=1e-6)
