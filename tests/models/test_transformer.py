"""The Transformer: against torch's own with the same weights, teacher forcing against steps, and its parts."""

import copy

import pytest
import torch
from flat_models import transformer
from searches import beam, greedy
from torch import Tensor, nn

import foci
from foci.decoding import GenerationConstraints, select
from foci.errors import ConfigError, ShapeError
from foci.functional.positions import sinusoid
from foci.layers.incremental import compiled_steps, packed_linear
from foci.layers.incremental.quantized_linear import QuantizedLinear, quantize
from foci.layers.incremental.tree_cache import TreeCache
from foci.mechanisms.heads import MultiHeadAttention
from foci.models.encoder_decoder import EncoderDecoder
from foci.models.options.text_encoders import TEXT_ENCODER_PRESETS

SIZES = {"model_dim": 12, "num_heads": 3, "hidden_dim": 17, "num_layers": 2}


def a_model(**options: object) -> EncoderDecoder:
    torch.manual_seed(0)
    return transformer(23, 19, **{**SIZES, "dropout": 0.0, **options}).double().eval()  # type: ignore[arg-type]


def a_batch() -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(1)
    source = torch.randint(4, 23, (5, 7))
    valid = torch.arange(7) < torch.tensor([[7], [3], [1], [5], [0]])
    target = torch.randint(4, 19, (5, 6))
    target[:, 0] = 1
    return source, valid, target


def torch_layers(model: EncoderDecoder, norm_first: bool) -> nn.Transformer:
    """torch's Transformer with our parameters; its embeddings are outside of it."""
    peer = nn.Transformer(12, 3, 2, 2, 17, 0.0, batch_first=True, norm_first=norm_first, dtype=torch.float64)
    if not norm_first:  # torch always ends its stacks in a LayerNorm; the paper does so only inside of the layers
        peer.encoder.norm = peer.decoder.norm = None

    def copy_attention(ours: MultiHeadAttention, theirs: nn.MultiheadAttention) -> None:
        layers = (ours.query_layer, ours.key_layer, ours.value_layer)
        theirs.in_proj_weight.copy_(torch.cat([layer.weight for layer in layers]))
        theirs.in_proj_bias.copy_(torch.cat([layer.bias for layer in layers]))
        theirs.out_proj.load_state_dict(ours.output_layer.state_dict())

    with torch.no_grad():
        for ours, theirs in zip(
            [*model.encoder.layers, *model.decoder.layers], [*peer.encoder.layers, *peer.decoder.layers]
        ):
            copy_attention(ours.self_attention, theirs.self_attn)
            norms = [ours.around_self.norm, ours.around_feed_forward.norm]
            if hasattr(ours, "cross_attention"):
                copy_attention(ours.cross_attention, theirs.multihead_attn)
                norms.insert(1, ours.around_cross.norm)
            for number, norm in enumerate(norms, start=1):
                getattr(theirs, f"norm{number}").load_state_dict(norm.state_dict())
            theirs.linear1.load_state_dict(ours.feed_forward.inner_layer.state_dict())
            theirs.linear2.load_state_dict(ours.feed_forward.outer_layer.state_dict())
    return peer.eval()


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_it_is_torchs_transformer(norm: str) -> None:
    model = a_model(norm=norm)
    for parameter in model.parameters():  # biases and norms too, which begin as zeros and ones
        nn.init.normal_(parameter, std=0.5)
    peer = torch_layers(model, norm == "pre")
    if norm == "pre":
        peer.encoder.norm.load_state_dict(model.encoder.norm.state_dict())
        peer.decoder.norm.load_state_dict(model.decoder.norm.state_dict())
    source, valid, target = (part[:4] for part in a_batch())  # torch has no sources of length 0

    def embed(table: nn.Embedding, tokens: Tensor) -> Tensor:
        return table(tokens) * 12**0.5 + sinusoid(tokens.shape[1], 12, dtype=torch.float64)

    table = model.decoder.embedding.table
    expected = peer(
        embed(model.encoder.embedding.table, source),
        embed(table, target),
        tgt_mask=nn.Transformer.generate_square_subsequent_mask(6, dtype=torch.float64),
        src_key_padding_mask=~valid,
        memory_key_padding_mask=~valid,
    )
    predicted = model(source, valid, target)
    torch.testing.assert_close(predicted.logits, expected @ table.weight.T)
    assert set(predicted.attentions) == {
        f"{part}.{n}.{kind}"
        for n in (0, 1)
        for part, kind in (("encoder", "self"), ("decoder", "self"), ("decoder", "cross"))
    }


OPTIONS = [
    {},
    {"norm": "pre", "positions": "learned", "max_length": 31},
    {"normalize": "sparsemax", "score": "cosine", "activation": "gelu", "tie_output": False},
    {"radius": 2},
    {"positions": "rotary"},
    {"positions": "alibi", "norm": "pre"},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_steps_are_teacher_forcing(options: dict[str, object]) -> None:
    model = a_model(**options)
    source, valid, _ = a_batch()
    target = torch.randint(4, 19, (5, 21))  # longer than the room a cache begins with
    predicted = model(source, valid, target)
    with torch.no_grad():
        memory, state = model.start(source, valid)
        for t in range(21):
            logits, state, attention = model.step(target[:, t], memory, state)
            torch.testing.assert_close(logits, predicted.logits[:, t])
            assert attention is not None
            cross = predicted.attentions["decoder.1.cross"].dense()[:, :, t : t + 1]
            torch.testing.assert_close(attention.dense(), cross)
            assert attention.shape == cross.shape


@pytest.mark.parametrize("options", [{}, {"radius": 5}])
def test_steps_after_reordering_and_dropping(options: dict[str, object]) -> None:
    model = a_model(**options)
    source, valid, _ = a_batch()
    generator = torch.Generator().manual_seed(3)
    left = torch.arange(5)
    with torch.no_grad():
        memory, state = model.start(source, valid)
        past = torch.full((5, 1), 1)
        for t in range(30):
            width = past.shape[0] // len(left)
            logits, state, attention = model.step(past[:, -1], memory, state)
            rows = left.repeat_interleave(width)
            predicted = model(source[rows], valid[rows], past)
            torch.testing.assert_close(logits, predicted.logits[:, -1])
            assert attention is not None
            torch.testing.assert_close(
                attention.mean_heads().dense(), predicted.attentions["decoder.1.cross"].mean_heads().rows([t])
            )
            new_width = [1, 3, 4][t] if t < 3 else 4
            parents = torch.randint(0, width, (len(left), new_width), generator=generator)
            index = parents + torch.arange(len(left)).unsqueeze(1) * width
            if t in (4, 9, 10):
                kept = torch.tensor([True] + [i != 1 for i in range(1, len(left))])
                left, index = left[kept], index[kept]
                memory = select(memory, kept.nonzero().squeeze(1))
            state = select(state, index.flatten())
            past = past[index.flatten()]
            past = torch.cat([past, torch.randint(4, 19, (past.shape[0], 1), generator=generator)], dim=1)
    assert len(left) == 2


def test_a_window_reaches_as_far_as_its_radius_in_every_layer() -> None:
    model = a_model(radius=1)
    source = torch.randint(4, 23, (1, 9))
    changed = source.clone()
    changed[0, 0] = 4 + (source[0, 0] - 3) % 19
    valid, target = torch.ones(1, 9, dtype=torch.bool), torch.randint(4, 19, (1, 8))
    one, other = (model.encoder(words, valid).values for words in (source, changed))
    assert ((one - other).abs().amax(dim=-1) > 0).tolist() == [[True] * 3 + [False] * 6]  # two layers, one cell each
    weights = model(source, valid, target).attentions["decoder.0.self"].mean_heads().dense()[0]
    assert torch.equal(weights > 0, torch.ones(8, 8).tril().triu(-1) > 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sources", [1, 5, 17])
@pytest.mark.parametrize(
    "options", [{}, {"norm": "pre", "activation": "gelu", "positions": "learned", "max_length": 9}]
)
def test_ready_steps_are_those_of_the_modules(
    options: dict[str, object], sources: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled_steps, "MOST_ROWS", 0)  # the kernel has tests of its own
    model = a_model(**options).to(dtype)
    for parameter in model.parameters():  # biases too, which begin as zeros
        nn.init.normal_(parameter, std=0.3)
    source = torch.randint(4, 23, (sources, 7))
    valid = torch.arange(7) < torch.tensor([[7], [3], [0], [5]]).repeat(5, 1)[:sources]
    for width in (1, 3):
        with torch.no_grad():
            memory, state = model.start(source, valid)
            plain = memory._replace(steps=None)
            token = torch.randint(4, 19, (sources,))
            state = other = model.step(token, memory, state).state
            assert memory.steps.form is None  # the first step is the modules'
            index = torch.arange(sources).repeat_interleave(width)
            state, other = select(state, index), select(other, index)
            for _ in range(7):
                token = torch.randint(4, 19, (sources * width,))
                found, expected = model.step(token, memory, state), model.step(token, plain, other)
                torch.testing.assert_close(found.logits, expected.logits)
                torch.testing.assert_close(found.attention.dense(), expected.attention.dense())
                state, other = found.state, expected.state
        assert memory.steps.form == "torch"


def test_who_looks_on_sees_the_modules_step() -> None:
    model = a_model()
    source, valid, target = a_batch()

    def steps(count: int) -> object:
        memory, state = model.start(source, valid)
        for t in range(count):
            state = model.step(target[:, t], memory, state).state
        return memory.steps

    with torch.no_grad():
        with foci.record(model) as tape:
            steps(3)
        assert tape["decoder.layers.1.cross_attention#2"].shape == (5, 3, 1, 7)
        seen: list[Tensor] = []
        hook = model.decoder.layers[0].feed_forward.register_forward_hook(lambda *call: seen.append(call[2]))
        steps(3)
        assert len(seen) == 3
        hook.remove()
        assert steps(3).form  # type: ignore[attr-defined]
        assert not model.train() or not steps(3).form  # type: ignore[attr-defined]
    assert not model.eval() or not steps(3).form  # type: ignore[attr-defined]


@pytest.mark.parametrize("rows", [1, 5, 100])
@pytest.mark.parametrize("biases", [(True, True), (False, True), (False, False)])
@pytest.mark.parametrize("kinds", ["plain", "quantized", "mixed"])
def test_packed_layers_stand_side_by_side(
    kinds: str, biases: tuple[bool, bool], rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed_linear, "_LARGE", 0)
    torch.manual_seed(0)
    layers = [nn.Linear(7, size, bias=bias) for size, bias in zip((11, 5), biases)]
    if kinds != "plain":
        layers = [QuantizedLinear(layers[0]), QuantizedLinear(layers[1]) if kinds == "quantized" else layers[1]]
    x = torch.randn(rows, 7)
    with torch.no_grad():
        expected = torch.cat([layer(x) for layer in layers], dim=1)
        torch.testing.assert_close(packed_linear.pack(layers, rows)(x), expected)
        torch.testing.assert_close(
            packed_linear.pack(layers, rows)(x[:1]),
            expected[:1] if kinds == "plain" else packed_linear.pack(layers, 1)(x[:1]),
        )
        torch.testing.assert_close(packed_linear.pack(layers[:1], rows)(x), expected[:, :11])


def test_a_state_can_be_continued_in_two_ways() -> None:
    model = a_model()
    source, valid, target = a_batch()
    with torch.no_grad():
        memory, state = model.start(source, valid)
        state = model.step(target[:, 0], memory, state).state
        one = model.step(target[:, 1], memory, state).state
        model.step(target[:, 2], memory, state)  # must leave what `one` remembers alone
        logits = model.step(target[:, 2], memory, one).logits
    torch.testing.assert_close(logits, model(source, valid, target).logits[:, 2])


def test_steps_have_gradients() -> None:
    model = a_model()
    source, valid, target = a_batch()
    memory, state = model.start(source, valid)
    logits = []
    for t in range(4):
        logit, state, _ = model.step(target[:, t], memory, state)
        logits.append(logit)
    weights = list(model.parameters())
    found = torch.autograd.grad(torch.stack(logits, dim=1).square().sum(), weights)
    expected = torch.autograd.grad(model(source, valid, target[:, :4]).logits.square().sum(), weights)
    torch.testing.assert_close(found, expected)


def test_padded_is_alone() -> None:
    model = a_model()
    source, valid, target = a_batch()
    together = model(source, valid, target).logits
    for row, size in enumerate(valid.sum(dim=1).tolist()):
        alone = model(source[row : row + 1, :size], valid[row : row + 1, :size], target[row : row + 1])
        torch.testing.assert_close(alone.logits[0], together[row])
    assert together.isfinite().all()


@pytest.mark.parametrize("options", [{}, {"radius": 2}])
def test_an_empty_batch(options: dict[str, object]) -> None:
    model = a_model(**options)
    source, valid, target = (part[:0] for part in a_batch())
    assert model(source, valid, target).logits.shape == (0, 6, 19)
    with torch.no_grad():
        memory, state = model.start(source, valid)
        for _ in range(20):  # more than the room a cache begins with
            logits, state, _ = model.step(target[:, 0], memory, state)
            assert logits.shape == (0, 19)


def test_it_overfits_a_batch_and_decodes_it() -> None:
    torch.manual_seed(0)
    model = transformer(23, 19, **{**SIZES, "model_dim": 24}, dropout=0.0, norm="pre")
    source, valid, target = (part[:4] for part in a_batch())
    target = torch.cat([target, torch.full((4, 1), 2)], dim=1)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(60):
        logits = model(source, valid, target[:, :-1]).logits
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.05
    model.eval()
    for found in (greedy(model, source, valid), beam(model, source, valid, size=4, coverage_penalty=0.1)):
        assert [h[0].tokens for h in found] == target[:, 1:-1].tolist()
        assert all(h[0].finished for h in found)


def test_beams_of_a_batch_are_those_of_its_sentences() -> None:
    model = a_model()
    nn.init.normal_(model.decoder.embedding.table.weight, std=0.6)
    source, valid, _ = a_batch()
    options = {"size": 4, "n_best": 3, "coverage_penalty": 0.1, "constraints": GenerationConstraints(max_length=25)}
    together = beam(model, source, valid, **options)  # type: ignore[arg-type]
    for row, size in enumerate(valid.sum(dim=1).tolist()):
        (alone,) = beam(model, source[row : row + 1, :size], valid[row : row + 1, :size], **options)  # type: ignore[arg-type]
        assert [h.tokens for h in alone] == [h.tokens for h in together[row]]
        assert [h.score for h in alone] == pytest.approx([h.score for h in together[row]])


def test_embeddings_are_shared_as_asked() -> None:
    apart = transformer(19, 19, **SIZES)
    assert apart.encoder.embedding.table is not apart.decoder.embedding.table
    assert apart.decoder.output.weight is apart.decoder.embedding.table.weight
    one = transformer(19, 19, **SIZES, share_embeddings=True, tie_output=False)
    assert one.encoder.embedding.table is one.decoder.embedding.table
    assert one.decoder.output.weight is not one.decoder.embedding.table.weight


def test_presets() -> None:
    presets = TEXT_ENCODER_PRESETS["transformer"]
    with torch.device("meta"):
        counts = {
            name: sum(p.numel() for p in transformer(37000, 37000, share_embeddings=True, **preset).parameters())
            for name, preset in presets.items()
            if name != "pointer"
        }
    assert counts["base"] == 63_082_496  # the paper: 65 million
    assert presets["tiny"] == {"model_dim": 128, "num_heads": 4, "hidden_dim": 256, "num_layers": 4, "dropout": 0.3}


def test_record_sees_every_attention() -> None:
    model = a_model()
    source, valid, target = a_batch()
    with foci.record(model) as tape:
        predicted = model(source, valid, target)
    torch.testing.assert_close(
        tape["decoder.layers.1.cross_attention"].dense(), predicted.attentions["decoder.1.cross"].dense()
    )


@pytest.mark.parametrize("sources", [3, 17])
def test_an_empty_source_does_not_touch_the_others_in_8_bits(sources: int) -> None:
    torch.manual_seed(0)
    model = transformer(97, 97, model_dim=64, num_heads=4, hidden_dim=128, num_layers=2, share_embeddings=True)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    small = quantize(model.eval(), least_weights=0)
    source = torch.randint(4, 97, (sources, 5))
    valid = torch.ones_like(source, dtype=torch.bool)
    valid[1] = False
    others = valid[:, 0]
    with torch.no_grad():
        memory, state = small.start(source, valid)
        exact, right = model.start(source, valid)
        plain, other = memory._replace(steps=None), state
        for token in torch.randint(4, 97, (4, sources)):
            found, expected = small.step(token, memory, state), small.step(token, plain, other)
            unrounded = model.step(token, exact, right)
            # One rounding of an activation that falls the other way moves a row's logits by some hundredths.
            torch.testing.assert_close(found.logits, expected.logits, rtol=0, atol=0.2)
            # All rows share one 8-bit scale: large numbers in the empty row would leave few bits to the others.
            for one in (found, expected):
                assert (one.logits - unrounded.logits)[others].std() < 0.05 * unrounded.logits[others].std()
            state, other, right = found.state, expected.state, unrounded.state


def test_quantized_is_near() -> None:
    torch.manual_seed(0)
    model = transformer(97, 97, model_dim=64, num_heads=4, hidden_dim=128, num_layers=2, share_embeddings=True).eval()
    source = torch.randint(4, 97, (3, 5))
    target = torch.randint(4, 97, (3, 7))
    before = copy.deepcopy(model.state_dict())
    small = quantize(model, least_weights=0)
    assert sum(isinstance(module, QuantizedLinear) for module in small.modules()) == 2 * (4 + 2) + 2 * (8 + 2) + 1
    with torch.no_grad():
        exact, rounded = (m(source, source > 0, target).logits for m in (model, small))
    error = (exact - rounded).std() / exact.std()
    assert 0 < error < 0.05
    assert small.decoder.embedding.table.weight is model.decoder.embedding.table.weight
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    untouched = quantize(model)
    assert not any(isinstance(module, QuantizedLinear) for module in untouched.modules())


def test_quantized_layers_are_joined_with_whom_they_stand_beside() -> None:
    one, two, three = (QuantizedLinear(nn.Linear(7, size)) for size in (3, 5, 5))
    x = torch.randn(2, 7)
    for other in (two, three, two):
        assert torch.equal(packed_linear.pack([one, other], 1)(x), torch.cat([one(x), other(x)], dim=1))


def test_quantized_weights_use_all_of_their_eight_bits() -> None:
    """Weights that are multiples of a 127th of the row's largest are kept exactly."""
    layer = nn.Linear(7, 5, bias=False)
    steps = torch.randint(-126, 127, (5, 7))
    steps[:, 3] = torch.tensor([127, -127, 127, 127, -127])
    largest = torch.tensor([0.5, 1.0, 3.0, 0.01, 7.0]).unsqueeze(1)
    with torch.no_grad():
        layer.weight.copy_(steps * largest / 127)
    torch.testing.assert_close(QuantizedLinear(layer)(torch.eye(7)), layer.weight.t().detach(), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("kind", ["dropout", "attention_dropout", "feed_forward_dropout"])
@torch.no_grad()
def test_every_dropout_acts_in_training_and_there_alone(kind: str) -> None:
    torch.manual_seed(0)
    sizes = {"model_dim": 8, "num_heads": 2, "hidden_dim": 16, "num_layers": 1}
    model = transformer(11, 13, **{**sizes, "dropout": 0.0, kind: 0.5})
    source, target = torch.randint(4, 11, (2, 5)), torch.randint(4, 13, (2, 7))

    def logits() -> torch.Tensor:
        return model(source, source > 0, target).logits

    still = model.eval() and logits()
    assert torch.equal(still, logits())
    first, second = model.train() and logits(), logits()
    assert not torch.allclose(first, second)
    assert not torch.allclose(first, still)


def test_quantized_needs_a_float32_layer() -> None:
    with pytest.raises(ConfigError, match=r"the weight is torch.float64 on cpu, expected torch.float32"):
        QuantizedLinear(nn.Linear(3, 2).double())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"share_embeddings": True}, "23 source and 19 target tokens"),
        ({"norm": "prae"}, "'pre'"),
        ({"positions": "learned"}, "need max_length"),
        ({"positions": "sinusoid"}, "'sinusoidal'"),
        ({"activation": "rellu"}, "'relu'"),
        ({"radius": -1}, "two whole numbers of 0 or more"),
        ({"max_length": 3}, "learned positions alone"),
    ],
)
def test_wrong_options(options: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        a_model(**options)


def test_wrong_shapes() -> None:
    model = a_model()
    source, valid, target = a_batch()
    with pytest.raises(ShapeError, match=r"source_valid has shape \(5, 6\), expected \(batch, position\) = \(5, 7\)"):
        model(source, valid[:, 1:], target)
    with pytest.raises(ShapeError, match=r"target has shape \(4, 6\), expected .* batch of 5"):
        model(source, valid, target[1:])
    with pytest.raises(ShapeError, match=r"tokens has shape \(5,\)"):
        model.decoder.embedding(target[:, 0])
    with pytest.raises(ShapeError, match="there are 5 hypotheses of 2 sources"):
        TreeCache(1, 5).grow(sources=2)


@pytest.mark.slow
def test_it_compiles() -> None:
    model = a_model(num_layers=1)  # further layers are compiled like the first
    source, valid, target = a_batch()
    compiled = torch.compile(lambda *batch: model(*batch).logits, fullgraph=True)
    torch.testing.assert_close(compiled(source, valid, target), model(source, valid, target).logits)
