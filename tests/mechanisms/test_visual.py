"""The attentions over feature maps, against the papers' equations as plain loops."""

import math

import pytest
import torch
from torch import Tensor, nn

from foci.errors import ConfigError, ShapeError
from foci.mechanisms.visual import CBAM, ChannelAttention, EfficientChannel, SpatialAttention, SqueezeExcitation

B, C, H, W = 2, 7, 3, 5

MAPS = {
    "squeeze_excitation": (lambda: SqueezeExcitation(C, reduction=2), (B, C, 1, 1)),
    "efficient_channel": (lambda: EfficientChannel(C, kernel_size=3), (B, C, 1, 1)),
    "spatial": (lambda: SpatialAttention(kernel_size=3), (B, 1, H, W)),
    "channel": (lambda: ChannelAttention(C, reduction=2), (B, C, 1, 1)),
    "cbam": (lambda: CBAM(C, reduction=2, kernel_size=3), (B, C, H, W)),
}


def pictures(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(dtype)


# The papers, one picture at a time: features[c][i][j].


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def mean(xs: list) -> float:
    return sum(xs) / len(xs)


def places(channel: list) -> list:
    return [x for row in channel for x in row]


def bottleneck_of(layers: nn.Sequential, pooled: list) -> list:
    down, up = layers[0].weight.tolist(), layers[2].weight.tolist()
    hidden = [max(0.0, sum(w * z for w, z in zip(row, pooled))) for row in down]
    return [sum(w * x for w, x in zip(row, hidden)) for row in up]


def excitation_of(module: SqueezeExcitation, features: list) -> list:
    return [sigmoid(x) for x in bottleneck_of(module.excite, [mean(places(channel)) for channel in features])]


def efficient_of(module: EfficientChannel, features: list) -> list:
    pooled = [mean(places(channel)) for channel in features]
    kernel = module.convolve.weight.flatten().tolist()
    weights = []
    for c in range(len(pooled)):
        total = 0.0
        for k, w in enumerate(kernel):
            neighbor = c + k - len(kernel) // 2
            if 0 <= neighbor < len(pooled):
                total += w * pooled[neighbor]
        weights.append(sigmoid(total))
    return weights


def channel_of(module: ChannelAttention, features: list) -> list:
    by_mean = bottleneck_of(module.excite, [mean(places(channel)) for channel in features])
    by_max = bottleneck_of(module.excite, [max(places(channel)) for channel in features])
    return [sigmoid(x + y) for x, y in zip(by_mean, by_max)]


def spatial_of(module: SpatialAttention, features: list) -> list:
    height, width = len(features[0]), len(features[0][0])
    pools = [
        [[pool([channel[i][j] for channel in features]) for j in range(width)] for i in range(height)]
        for pool in (mean, max)
    ]
    kernel = module.convolve.weight[0].tolist()
    center = len(kernel[0]) // 2
    weights = [[0.0] * width for _ in range(height)]
    for i in range(height):
        for j in range(width):
            for p in range(2):
                for y in range(len(kernel[0])):
                    for x in range(len(kernel[0])):
                        row, column = i + y - center, j + x - center
                        if 0 <= row < height and 0 <= column < width:
                            weights[i][j] += kernel[p][y][x] * pools[p][row][column]
            weights[i][j] = sigmoid(weights[i][j])
    return weights


def close(ours: Tensor, paper: list) -> bool:
    return torch.allclose(ours, torch.tensor(paper, dtype=ours.dtype), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("build", "paper"),
    [
        (lambda: SqueezeExcitation(C, reduction=2), excitation_of),
        (lambda: SqueezeExcitation(C, reduction=5), excitation_of),
        (lambda: EfficientChannel(C), efficient_of),
        (lambda: EfficientChannel(C, kernel_size=5), efficient_of),
        (lambda: EfficientChannel(C, kernel_size=17), efficient_of),
        (lambda: ChannelAttention(C, reduction=3), channel_of),
    ],
)
def test_channel_weights_are_the_papers(build, paper):
    module, features = build().double(), pictures(B, C, H, W)
    attended = module(features)
    assert attended.weights.shape == (B, C, 1, 1)
    for b in range(B):
        expected = paper(module, features[b].tolist())
        assert close(attended.weights.dense()[b, :, 0, 0], expected)
        for c in range(C):
            assert torch.allclose(attended.output[b, c], features[b, c] * expected[c])


@pytest.mark.parametrize("kernel_size", [1, 3, 7])
def test_spatial_weights_are_the_papers(kernel_size):
    module, features = SpatialAttention(kernel_size=kernel_size).double(), pictures(B, C, H, W)
    output, weights, state = module(features)
    assert state is None
    assert weights.shape == (B, 1, H, W)
    for b in range(B):
        assert close(weights.dense()[b, 0], spatial_of(module, features[b].tolist()))
    for c in range(C):
        assert torch.allclose(output[:, c], features[:, c] * weights.dense()[:, 0])


def test_cbam_weighs_channels_first_and_then_places():
    module, features = CBAM(C, reduction=2, kernel_size=3).double(), pictures(B, C, H, W)
    output, weights, state = module(features)
    assert state is None
    for b in range(B):
        channel = channel_of(module.channel, features[b].tolist())
        weighed = [[[channel[c] * x for x in row] for row in features[b, c].tolist()] for c in range(C)]
        place = spatial_of(module.spatial, weighed)
        expected = [[[channel[c] * place[i][j] for j in range(W)] for i in range(H)] for c in range(C)]
        assert close(weights.dense()[b], expected)
    assert torch.allclose(output, features * weights.dense())


def test_the_halves_of_cbam_can_be_seen():
    module, seen = CBAM(C, reduction=2, kernel_size=3), {}
    for name, child in module.named_children():
        child.register_forward_hook(lambda _module, _inputs, attended, name=name: seen.update({name: attended}))
    _, weights, _ = module(pictures(B, C, H, W, dtype=torch.float32))
    assert seen["channel"].weights.shape == (B, C, 1, 1)
    assert seen["spatial"].weights.shape == (B, 1, H, W)
    product = seen["channel"].weights.dense() * seen["spatial"].weights.dense()
    assert torch.equal(weights.dense(), product)


def test_the_weights_of_cbam_answer_every_question_without_being_multiplied_out():
    weights = CBAM(C, reduction=2, kernel_size=3)(pictures(B, C, H, W, dtype=torch.float32)).weights
    dense = weights.dense()
    assert weights.shape == dense.shape == (B, C, H, W)
    assert torch.equal(weights.rows([2, 0]), dense[:, :, [2, 0]])
    assert torch.equal(weights.heads(5).dense(), dense[:, 5])
    assert torch.equal(weights.heads(slice(1, 4)).dense(), dense[:, 1:4])
    assert torch.equal(weights.heads(torch.tensor([6, 1])).dense(), dense[:, [6, 1]])
    assert torch.allclose(weights.mean_heads().dense(), dense.mean(dim=1))
    assert torch.equal(weights.argmax(), dense.argmax(dim=-1))
    assert weights.source.channel.shape == (B, C, 1, 1)


@pytest.mark.parametrize(
    ("channels", "kernel_size"),
    [(1, 1), (2, 1), (7, 1), (8, 3), (64, 3), (127, 3), (128, 5), (256, 5), (512, 5), (1024, 5), (2048, 7)],
)
def test_the_papers_rule_for_the_kernel(channels, kernel_size):
    """The odd number nearest to (log2 C + 1) / 2, and no other is nearer."""
    assert EfficientChannel(channels).kernel_size == kernel_size
    target = (math.log2(channels) + 1) / 2
    assert all(abs(kernel_size - target) <= abs(other - target) for other in range(1, 99, 2))


@pytest.mark.parametrize("name", MAPS)
def test_any_size_dtype_and_an_empty_batch(name):
    build, shape = MAPS[name]
    for sizes in ((H, W), (1, 1), (1, 13), (13, 1)):
        output, weights, state = build()(pictures(B, C, *sizes, dtype=torch.float32))
        assert output.shape == (B, C, *sizes)
        assert state is None
        expected = [size if applied > 1 else 1 for size, applied in zip(sizes, shape[2:])]
        assert weights.shape == (*shape[:2], *expected)
        assert ((weights.dense() > 0) & (weights.dense() < 1)).all()
    output, weights, _ = build()(torch.empty(0, C, H, W))
    assert output.shape == (0, C, H, W)
    assert weights.shape == (0, *shape[1:])
    features = pictures(B, C, H, W, dtype=torch.bfloat16).requires_grad_()
    output, weights, _ = build().bfloat16()(features)
    assert output.dtype == weights.dense().dtype == torch.bfloat16
    output.sum().backward()
    assert features.grad.isfinite().all()


@pytest.mark.parametrize("name", MAPS)
def test_gradients(name):
    module = MAPS[name][0]().double()

    def call(features: Tensor, *parameters: Tensor) -> tuple[Tensor, Tensor]:
        names = dict(zip(dict(module.named_parameters()), parameters))
        output, weights, _ = torch.func.functional_call(module, names, (features,))
        return output, weights.dense()

    features = pictures(2, C, 2, 3).requires_grad_()
    assert torch.autograd.gradcheck(call, (features, *module.parameters()), fast_mode=True)


def test_fewer_channels_than_the_reduction_keep_one_hidden_unit():
    for module in (SqueezeExcitation(3), ChannelAttention(3), CBAM(3).channel):
        assert module.excite[0].weight.shape == (1, 3)
    assert SqueezeExcitation(64, reduction=16).excite[0].weight.shape == (4, 64)


@pytest.mark.parametrize("name", MAPS)
def test_wrong_shapes_are_named(name):
    module = MAPS[name][0]()
    owner = type(module).__name__
    with pytest.raises(ShapeError) as caught:
        module(torch.zeros(C, H, W))
    channels = "channel" if name == "spatial" else C
    assert f"{owner}: features has shape (7, 3, 5), expected (batch, {channels}, height, width)" in str(caught.value)
    if name != "spatial":
        with pytest.raises(ShapeError) as caught:
            module(torch.zeros(B, 11, H, W))
        assert f"{owner}: features has shape (2, 11, 3, 5), expected (batch, 7, height, width)" in str(caught.value)
    with pytest.raises(ShapeError, match="int64"):
        module(torch.zeros(B, C, H, W, dtype=torch.long))


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda: SqueezeExcitation(0), "channels is 0"),
        (lambda: SqueezeExcitation(C, reduction=0), "reduction is 0"),
        (lambda: EfficientChannel(0), "channels is 0"),
        (lambda: EfficientChannel(C, kernel_size=4), "kernel_size is 4"),
        (lambda: EfficientChannel(C, kernel_size=-1), "kernel_size is -1"),
        (lambda: SpatialAttention(kernel_size=2), "kernel_size is 2"),
        (lambda: CBAM(C, kernel_size=6), "kernel_size is 6"),
        (lambda: CBAM(0), "channels is 0"),
    ],
)
def test_wrong_options_are_named(build, said):
    with pytest.raises(ConfigError, match=said):
        build()


@pytest.mark.slow
@pytest.mark.parametrize("name", MAPS)
def test_compiled(name):
    torch.compiler.reset()
    module, features = MAPS[name][0](), pictures(B, C, H, W, dtype=torch.float32)
    with torch.no_grad():
        output, weights, _ = torch.compile(module, fullgraph=True)(features)
        expected = module(features)
    assert torch.allclose(output, expected.output, atol=1e-6)
    assert torch.allclose(weights.dense(), expected.weights.dense(), atol=1e-6)
