import math

import pytest
import seq2seq as checks
import torch
from flat_models import recurrent_seq2seq, seq2seq_by_preset
from seq2seq import SOURCE_VOCABULARY, TARGET_VOCABULARY, B, S, T, example, generic

import foci
from foci.decoding import select
from foci.errors import ConfigError, ShapeError, UnknownNameError
from foci.layers.coverage import Coverage, coverage_loss
from foci.layers.incremental.hypotheses import as_rows
from foci.layers.recurrent import Bridge, Maxout, Recurrence, RecurrentEncoder
from foci.mechanisms.parts import Memory
from foci.models.options.text_encoders import TEXT_ENCODER_PRESETS
from foci.weights import Weights
from foci.weights.sources import DotSoftmax

SMALL = {"embedding_dim": 5, "hidden_dim": 6}

PLAIN = {
    "sutskever lstm": {"decoder": "sutskever", "cell": "lstm", "num_layers": 2, "bidirectional": False},
    "sutskever gru, narrow readout": {"decoder": "sutskever", "readout_dim": 3},
    "cho gru": {"decoder": "cho"},
    "cho lstm": {"decoder": "cho", "cell": "lstm", "num_layers": 2},
}
ATTENTIVE = {
    "bahdanau additive": {"decoder": "bahdanau", "score": "additive", "attention_dim": 3},
    "bahdanau lstm": {"decoder": "bahdanau", "score": "additive", "cell": "lstm", "num_layers": 2, "encoder_dim": 8},
    "bahdanau concat": {"decoder": "bahdanau", "score": "concat"},
    "bahdanau location_aware": {"decoder": "bahdanau", "score": "location_aware"},
    "bahdanau location_aware smooth": {"decoder": "bahdanau", "score": "location_aware", "normalize": "sigmoid"},
    "bahdanau median window": {"decoder": "bahdanau", "score": "additive", "focus": "median_window", "window": (1, 2)},
    "bahdanau both": {
        "decoder": "bahdanau",
        "score": "location_aware",
        "focus": "median_window",
        "window": (2, 2),
        "sharpening": 2.0,
    },
    "bahdanau coverage": {"decoder": "bahdanau", "score": "additive", "coverage": True},
    "bahdanau local_m": {"decoder": "bahdanau", "score": "additive", "focus": "local_m", "radius": 1},
    "luong dot": {"score": "dot", "cell": "lstm", "num_layers": 2, "bidirectional": False},
    "luong scaled_dot": {"score": "scaled_dot"},
    "luong general": {"score": "general", "encoder_dim": 8},
    "luong concat": {"score": "concat"},
    "luong cosine": {"score": "cosine"},
    "luong location": {"score": "location", "max_length": S},
    "luong location_aware": {"score": "location_aware"},
    "luong local_m": {"focus": "local_m", "radius": 2},
    "luong local_p": {"focus": "local_p", "radius": 2},
    "luong local_p location": {"focus": "local_p", "radius": 2, "score": "location", "max_length": S},
    "luong sparsemax": {"normalize": "sparsemax"},
    "luong entmax": {"normalize": "entmax15", "score": "additive"},
    "luong hard": {"normalize": "hard"},
    "luong sample": {"normalize": "sample", "score": "concat"},
    "luong gumbel": {"normalize": "gumbel"},
    "luong local_p hard": {"normalize": "hard", "focus": "local_p", "radius": 2},
    "luong coverage": {"coverage": True},
    "luong coverage location_aware": {"coverage": True, "score": "location_aware"},
    "luong heads": {"num_heads": 2, "score": "scaled_dot", "encoder_dim": 8},
    "luong heads sparse": {"num_heads": 3, "score": "cosine", "normalize": "sparsemax"},
    "luong heads no feeding": {"num_heads": 3, "score": "dot", "input_feeding": False},
    "bahdanau heads": {"decoder": "bahdanau", "num_heads": 2, "score": "scaled_dot", "cell": "lstm", "encoder_dim": 8},
    "luong no feeding": {"input_feeding": False},
    "luong no feeding, additive": {"input_feeding": False, "score": "additive", "cell": "lstm"},
    "luong no feeding, local_m": {"input_feeding": False, "focus": "local_m", "radius": 1},
    "luong no feeding, location_aware": {"input_feeding": False, "score": "location_aware"},
    "luong no feeding, coverage": {"input_feeding": False, "score": "additive", "coverage": True},
}
ALL = PLAIN | ATTENTIVE
SOME = [
    "sutskever lstm",
    "cho lstm",
    "bahdanau both",
    "bahdanau coverage",
    "luong dot",
    "luong local_p",
    "luong local_m",
]


def make(name, **others):
    return generic(recurrent_seq2seq(SOURCE_VOCABULARY, TARGET_VOCABULARY, **SMALL | ALL[name] | others))


@pytest.mark.parametrize("hypotheses", [1, 3])
@pytest.mark.parametrize("name", ALL)
def test_steps_equal_teacher_forcing(name, hypotheses):
    checks.check_steps_equal_teacher_forcing(make(name), hypotheses)


@pytest.mark.parametrize("name", ALL)
def test_padded_equals_alone(name):
    checks.check_padded_equals_alone(make(name))


@pytest.mark.parametrize("name", [*SOME, "luong location", "luong location_aware", "luong sparsemax", "luong hard"])
def test_a_masked_source_token_is_not_seen(name):
    checks.check_masked_source_is_not_seen(make(name))


@pytest.mark.parametrize("name", ALL)
def test_gradients_are_finite_with_an_empty_source(name):
    checks.check_gradients_with_an_empty_source(make(name), anomaly=name == "luong local_p")


@pytest.mark.parametrize("name", SOME)
def test_empty_batch_source_and_target(name):
    model = make(name)
    source, valid, target = example()
    weights = 1 if name in ATTENTIVE else 0
    for source_part, valid_part, target_part in (
        (source[:0], valid[:0], target[:0]),
        (source[:, :0], valid[:, :0], target),
        (source, valid, target[:, :0]),
    ):
        predicted = model(source_part, valid_part, target_part)
        assert predicted.logits.shape == (*target_part.shape, TARGET_VOCABULARY)
        assert len(predicted.attentions) == weights
        for handle in predicted.attentions.values():
            assert handle.dense().shape == (*target_part.shape, source_part.shape[1])
    memory, state = model.start(source[:0], valid[:0])
    assert model.step(target[:0, 0], memory, state).logits.shape == (0, TARGET_VOCABULARY)


def test_no_attention_gives_no_weights():
    source, valid, target = example()
    model = make("cho gru")
    assert model(source, valid, target).attentions == {}
    assert model.step(target[:, 0], *model.start(source, valid)).attention is None


@pytest.mark.parametrize("name", SOME)
def test_state_dict_round_trip(name):
    model = make(name)
    other = recurrent_seq2seq(SOURCE_VOCABULARY, TARGET_VOCABULARY, **SMALL | ALL[name]).double().eval()
    other.load_state_dict(model.state_dict())
    assert torch.equal(model(*example()).logits, other(*example()).logits)


@pytest.mark.parametrize("name", SOME)
def test_forward_changes_no_attribute(name):
    model = make(name).train()
    before = {key: dict(module.__dict__) for key, module in model.named_modules()}
    model(*example())
    assert {key: dict(module.__dict__) for key, module in model.named_modules()} == before


OVERFITTED = {"luong no feeding, additive": 50, "sutskever lstm": 150, "cho gru": 150, "bahdanau additive": 150}
OVERFITTED |= {"luong general": 150, "luong local_p": 150}
QUICKLY = "luong no feeding, additive"


@pytest.mark.parametrize(
    ("name", "steps"),
    [pytest.param(*pair, marks=() if pair[0] == QUICKLY else pytest.mark.slow) for pair in OVERFITTED.items()],
)
def test_overfits_one_batch(name, steps):
    torch.manual_seed(13)
    sizes = {"embedding_dim": 16, "hidden_dim": 32, "readout_dim": None, "attention_dim": None, "encoder_dim": None}
    model = recurrent_seq2seq(SOURCE_VOCABULARY, TARGET_VOCABULARY, **ALL[name] | sizes)
    assert checks.overfit(model, steps, rate=0.02) > 0.95


def test_shared_embeddings_are_one_table():
    model = recurrent_seq2seq(19, 19, **SMALL, share_embeddings=True)
    assert model.encoder.embedding.weight is model.decoder.embedding.weight is model.decoder.output.weight
    assert (model.decoder.output.weight[0] == 0).all()
    checks.check_steps_equal_teacher_forcing(generic(model), 3)


def test_dropout_acts_in_training_only():
    model = make("luong general", dropout=0.5)
    assert torch.equal(model(*example()).logits, model(*example()).logits)
    model.train()
    assert not torch.allclose(model(*example()).logits, model(*example()).logits)


def test_presets_build():
    with torch.device("meta"):
        sizes = {
            name: sum(p.numel() for p in seq2seq_by_preset(50, 60, "rnn", name).parameters())
            for name in TEXT_ENCODER_PRESETS["recurrent"]
            if name != "pointer"
        }
    assert sizes["tiny"] < 2_000_000 < min(size for name, size in sizes.items() if name != "tiny")


def test_record_sees_the_attention():
    model = make("bahdanau additive")
    with foci.record(model) as tape:
        model(*example())
    assert list(tape) == ["decoder.attention", *(f"decoder.attention#{t}" for t in range(1, T))]


# --- the papers' equations as plain loops


def matvec(weight, vector):
    return [sum(w * v for w, v in zip(row, vector)) for row in weight]


def plus(*vectors):
    return [sum(parts) for parts in zip(*vectors)]


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def softmax(scores):
    exps = [math.exp(score - max(scores)) for score in scores]
    return [e / sum(exps) for e in exps]


def gru_by_hand(layer, x, h):
    gates_x = plus(matvec(layer.weight_ih_l0.tolist(), x), layer.bias_ih_l0.tolist())
    gates_h = plus(matvec(layer.weight_hh_l0.tolist(), h), layer.bias_hh_l0.tolist())
    size, new = len(h), []
    for i in range(size):
        reset = sigmoid(gates_x[i] + gates_h[i])
        update = sigmoid(gates_x[size + i] + gates_h[size + i])
        candidate = math.tanh(gates_x[2 * size + i] + reset * gates_h[2 * size + i])
        new.append((1 - update) * candidate + update * h[i])
    return new


def read_by_hand(weights, annotations):
    return [sum(w * h[d] for w, h in zip(weights, annotations)) for d in range(len(annotations[0]))]


def test_one_step_of_rnnsearch_by_hand():
    model = make("bahdanau additive")
    source, valid, target = example()
    memory, state = model.start(source, valid)
    stepped = model.step(target[:, 1], memory, state)
    score = model.decoder.attention.score
    for b, length in enumerate(checks.LENGTHS):
        annotations = memory.source.value[b, :length].tolist()
        previous = state.recurrent[0][b, -1].tolist()
        word = model.decoder.embedding.weight[target[b, 1]].tolist()
        energies = []
        for annotation in annotations:
            hidden = plus(
                matvec(score.query_layer.weight.tolist(), previous), matvec(score.key_layer.weight.tolist(), annotation)
            )
            energies.append(sum(v * math.tanh(x) for v, x in zip(score.vector.tolist(), hidden)))
        weights = softmax(energies)
        context = read_by_hand(weights, annotations)
        new = gru_by_hand(model.decoder.recurrence.layers, word + context, previous)
        units = plus(
            matvec(model.decoder.readout.layer.weight.tolist(), new + word + context),
            model.decoder.readout.layer.bias.tolist(),
        )
        readout = [max(units[2 * i], units[2 * i + 1]) for i in range(len(units) // 2)]
        logits = plus(matvec(model.decoder.output.weight.tolist(), readout), model.decoder.output.bias.tolist())
        assert stepped.logits[b].tolist() == pytest.approx(logits, abs=1e-10)
        assert stepped.attention.dense()[b, 0, :length].tolist() == pytest.approx(weights, abs=1e-10)


def test_two_steps_of_luong_by_hand():
    model = make("luong general")
    source, valid, target = example()
    memory, state = model.start(source, valid)
    first = model.step(target[:, 0], memory, state)
    second = model.step(target[:, 1], memory, first.state)
    for b, length in enumerate(checks.LENGTHS):
        annotations = memory.source.value[b, :length].tolist()
        hidden, feed = state.recurrent[0][b, -1].tolist(), [0.0] * 6
        for t, stepped in enumerate((first, second)):
            word = model.decoder.embedding.weight[target[b, t]].tolist()
            hidden = gru_by_hand(model.decoder.recurrence.layers, word + feed, hidden)
            scores = []
            for annotation in annotations:
                mapped = matvec(model.decoder.attention.score.weight.tolist(), annotation)
                scores.append(sum(h * m for h, m in zip(hidden, mapped)))
            context = read_by_hand(softmax(scores), annotations)
            feed = [math.tanh(x) for x in matvec(model.decoder.readout[0].weight.tolist(), context + hidden)]
            logits = plus(matvec(model.decoder.output.weight.tolist(), feed), model.decoder.output.bias.tolist())
            assert stepped.logits[b].tolist() == pytest.approx(logits, abs=1e-10)


def test_rnnsearch_reads_with_its_top_layer():
    model, (source, valid, target) = make("bahdanau lstm"), example()
    memory, state = model.start(source, valid)
    top = state.recurrent[0][:, 1:]
    expected = model.decoder.attention(top, memory.source.value, mask=valid.unsqueeze(1)).weights.dense()
    torch.testing.assert_close(model.step(target[:, 0], memory, state).attention.dense(), expected)


def test_cho_sees_the_summary_in_gates_and_output():
    model = make("cho gru")
    source, valid, target = example()
    memory, state = model.start(source, valid)
    stepped = model.step(target[:, 0], memory, state)
    summary, word = memory.summary[1].tolist(), model.decoder.embedding.weight[target[1, 0]].tolist()
    (final,) = model.encoder(source, valid).summary
    assert summary == pytest.approx(model.decoder.summary(final[1, -1]).tanh().tolist())
    assert state.recurrent[0][1, 0].tolist() == pytest.approx(
        model.decoder.bridge.hidden(memory.summary[1]).tanh().tolist()
    )
    new = gru_by_hand(model.decoder.recurrence.layers, word + summary, state.recurrent[0][1, 0].tolist())
    expected = model.decoder.output(model.decoder.readout(torch.tensor(new + word + summary, dtype=torch.float64)))
    torch.testing.assert_close(stepped.logits[1], expected)


def test_luong_and_sutskever_copy_the_state():
    for name in ("sutskever lstm", "luong dot"):
        model = make(name)
        source, valid, _ = example()
        final = model.encoder(source, valid).summary
        _, state = model.start(source, valid)
        assert model.decoder.bridge is None
        assert len(final) == 2
        for ours, theirs in zip(state.recurrent, final):
            assert torch.equal(ours, theirs)


def test_heads_are_those_of_multi_head_attention():
    model = make("luong heads")
    source, valid, target = example()
    weights = model(source, valid, target).attentions["decoder.cross"]
    assert weights.shape == (B, 2, T, S)
    encoded = model.encoder(source, valid)
    memory, state = model.start(source, valid)
    stepped = model.step(target[:, 0], memory, state)
    hidden = stepped.state.recurrent[0][:, -1:]
    attended = model.decoder.attention(hidden, encoded.values, mask=valid.unsqueeze(1))
    torch.testing.assert_close(stepped.attention.dense(), attended.weights.dense())
    readout = model.decoder.readout(torch.cat([attended.output, hidden], dim=-1))
    torch.testing.assert_close(stepped.state.feed, readout.squeeze(1))
    nothing = model(source, valid, target[:, :0]).attentions["decoder.cross"]
    assert nothing.shape == (B, 2, 0, S)


# --- coverage, REINFORCE


def test_coverage_by_hand():
    model = make("bahdanau coverage")
    source, valid, target = example()
    memory, state = model.start(source, valid)
    first = model.step(target[:, 0], memory, state)
    second = model.step(target[:, 1], memory, first.state)
    score, read = model.decoder.attention.score, first.attention.dense()[0, 0].tolist()
    assert second.state.covered[0].tolist() == pytest.approx(
        [a + b for a, b in zip(read, second.attention.dense()[0, 0].tolist())]
    )
    energies = []
    for covered, annotation in zip(read, memory.source.value[0].tolist()):
        hidden = plus(
            matvec(score.query_layer.weight.tolist(), first.state.recurrent[0][0, -1].tolist()),
            matvec(score.key_layer.weight.tolist(), annotation),
            [w * covered for w in model.decoder.coverage.vector.tolist()],
        )
        energies.append(sum(v * math.tanh(x) for v, x in zip(score.vector.tolist(), hidden)))
    assert second.attention.dense()[0, 0].tolist() == pytest.approx(softmax(energies), abs=1e-10)


@pytest.mark.parametrize("name", ["bahdanau coverage", "luong coverage"])
def test_gradients_pass_through_the_coverage(name):
    """Finite differences along a direction: what was read before is part of what the loss depends on."""
    model = make(name)
    source, valid, target = example()
    torch.manual_seed(1)
    parameters = list(model.parameters())
    directions = [torch.randn_like(parameter) for parameter in parameters]
    weights = torch.randn(B, T, S, dtype=torch.float64)

    def loss():
        return (model(source, valid, target).attentions["decoder.cross"].dense() * weights).sum()

    gradients = torch.autograd.grad(loss(), parameters, allow_unused=True)
    slope = sum((gradient * way).sum() for gradient, way in zip(gradients, directions) if gradient is not None)
    found = []
    for step in (1e-6, -1e-6):
        with torch.no_grad():
            torch._foreach_add_(parameters, directions, alpha=step)
            found.append(loss())
            torch._foreach_sub_(parameters, directions, alpha=step)
    torch.testing.assert_close((found[0] - found[1]) / 2e-6, slope, rtol=1e-5, atol=1e-7)


@torch.no_grad()
def test_coverage_in_single_precision_does_not_read_the_keys_of_the_first_step():
    """A kernel prepares the keys of the additive score once; with coverage they change at every step."""
    torch.manual_seed(0)
    model = recurrent_seq2seq(
        17, 19, embedding_dim=5, hidden_dim=64, decoder="bahdanau", score="additive", coverage=True
    ).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    source, target = torch.randint(3, 17, (3, 31)), torch.randint(3, 19, (3, 7))
    single = model(source, source > 0, target)
    double = model.double()(source, source > 0, target)
    for name, weights in double.attentions.items():
        torch.testing.assert_close(single.attentions[name].dense().double(), weights.dense(), atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(single.logits.double(), double.logits, atol=1e-3, rtol=1e-3)


def test_coverage_loss_is_what_was_read_twice():
    source, valid, target = example()
    weights = make("luong coverage")(source, valid, target).attentions["decoder.cross"]
    loss, dense = coverage_loss(weights), weights.dense().tolist()
    for b in range(B):
        for t in range(T):
            twice = sum(min(dense[b][t][i], sum(dense[b][u][i] for u in range(t))) for i in range(S))
            assert loss[b, t].item() == pytest.approx(twice, abs=1e-12)
    loss.sum().backward()


@pytest.mark.parametrize("decoder", ["bahdanau", "luong"])
@pytest.mark.parametrize("input_feeding", [True, False])
def test_sampled_attention_has_log_probabilities(decoder, input_feeding):
    model = recurrent_seq2seq(17, 19, **SMALL, decoder=decoder, normalize="sample", input_feeding=input_feeding)
    weights = model(*example(lengths=(7, 4, 0))).attentions["decoder.cross"]
    assert weights.log_prob.shape == (B, T)
    assert (weights.log_prob[:2] < 0).all()
    assert (weights.log_prob[2] == 0).all()
    weights.log_prob.sum().backward()
    assert model.decoder.attention.score.weight.grad.abs().sum() > 0


# --- handles


@pytest.mark.parametrize("heads", [(), (2,)])
def test_queries_as_rows(heads):
    query, key = torch.randn(3, *heads, 4, 5), torch.randn(3, *heads, 7, 5)
    weights = Weights(DotSoftmax(query, key, 1.0), torch.randn(3, *heads, 4))
    rows, dense = as_rows(weights), weights.dense()
    assert rows.shape == (12, *heads, 1, 7)
    for b in range(3):
        for k in range(4):
            torch.testing.assert_close(rows.dense()[4 * b + k, ..., 0, :], dense[b, ..., k, :])
            torch.testing.assert_close(rows.log_prob[4 * b + k, ..., 0], weights.log_prob[b, ..., k])
    assert rows.topk(2)[1].shape == (12, *heads, 1, 2)
    if heads:
        torch.testing.assert_close(rows.heads(1).dense(), rows.dense()[:, 1])


def test_weights_of_steps_are_one_handle():
    weights = make("luong general")(*example()).attentions["decoder.cross"]
    dense = weights.dense()
    assert dense.shape == weights.shape == (B, T, S)
    torch.testing.assert_close(weights.rows(2), dense[:, 2])
    torch.testing.assert_close(weights.rows(slice(1, 3)), dense[:, 1:3])
    torch.testing.assert_close(weights.rows([3, 0]), dense[:, [3, 0]])
    assert weights.rows(slice(2, 2)).shape == (B, 0, S)
    weights.entropy().sum().backward()


# --- layers


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_encoder_equals_the_plain_rnn_on_each_row(cell):
    encoder = RecurrentEncoder(3, 4, cell=cell, num_layers=2).double()
    embedded = torch.randn(3, 5, 3, dtype=torch.float64)
    valid = torch.tensor([[0, 1, 0, 1, 1], [1, 1, 1, 1, 1], [0, 0, 0, 0, 0]]).bool()
    output, state = encoder(embedded, valid)
    for b in range(2):
        alone, last = encoder.recurrence.layers(embedded[b][valid[b]].unsqueeze(0))
        torch.testing.assert_close(output[b][valid[b]], alone[0])
        for ours, theirs in zip(state, last if cell == "lstm" else (last,)):
            joined = torch.stack([torch.cat([theirs[2 * i, 0], theirs[2 * i + 1, 0]]) for i in range(2)])
            torch.testing.assert_close(ours[b], joined)
    assert (output[~valid] == 0).all()
    assert all((part[2] == 0).all() for part in state)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("junk", [math.nan, math.inf, 1e6])
def test_what_stands_in_padding_does_not_count(cell, junk):
    encoder = RecurrentEncoder(3, 4, cell=cell, num_layers=2)
    embedded = torch.randn(3, 5, 3)
    valid = torch.tensor([[0, 1, 0, 1, 1], [1, 1, 1, 0, 0], [0, 0, 0, 0, 0]]).bool()
    output, state = encoder(embedded, valid)
    spoilt = embedded.masked_fill(~valid.unsqueeze(-1), junk).requires_grad_()
    same, same_state = encoder(spoilt, valid)
    assert torch.equal(output, same)
    assert all(torch.equal(a, b) for a, b in zip(state, same_state))
    (grad,) = torch.autograd.grad(same.sum() + sum(part.sum() for part in same_state), spoilt)
    assert (grad[~valid] == 0).all()
    assert grad.isfinite().all()


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_recurrence_under_autocast(cell):
    encoder, recurrence = RecurrentEncoder(3, 4, cell=cell), Recurrence(3, 4, cell=cell)
    embedded, valid = torch.randn(2, 5, 3), torch.ones(2, 5, dtype=torch.bool)
    wanted = encoder(embedded, valid)[0], recurrence(embedded)[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = encoder(embedded.bfloat16(), valid)[0], recurrence(embedded.bfloat16())[0]
    for mine, exact in zip(found, wanted):
        torch.testing.assert_close(mine.float(), exact, rtol=0.05, atol=0.02)
    sum(part.float().sum() for part in found).backward()


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_the_bridge_squashes_hidden_states_and_not_cells(cell):
    bridge = Bridge(3, 5, cell=cell, num_layers=1).double()
    given = [4.0 * torch.randn(2, 1, 3, dtype=torch.float64) for _ in range(2 if cell == "lstm" else 1)]
    hidden, *cells = bridge(tuple(given))
    torch.testing.assert_close(hidden, torch.tanh(given[0] @ bridge.hidden.weight.T + bridge.hidden.bias))
    if cell == "lstm":
        torch.testing.assert_close(cells, [given[1] @ bridge.cell.weight.T + bridge.cell.bias])
        assert cells[0].abs().max() > 1
    else:
        assert not cells


def test_maxout_takes_the_larger_of_pairs():
    layer, x = Maxout(3, 2), torch.randn(5, 3)
    units = layer.layer(x).tolist()
    expected = [[max(row[0], row[1]), max(row[2], row[3])] for row in units]
    torch.testing.assert_close(layer(x), torch.tensor(expected))


# --- errors


def test_wrong_options_are_named():
    with pytest.raises(UnknownNameError, match="Did you mean 'bahdanau'"):
        recurrent_seq2seq(5, 7, decoder="bahdanu")
    with pytest.raises(UnknownNameError, match="lstm"):
        recurrent_seq2seq(5, 7, cell="lstmm")
    with pytest.raises(ConfigError, match="unknown focus of AttentionOptions 'sliding_window'"):
        recurrent_seq2seq(5, 7, focus="sliding_window")
    with pytest.raises(ConfigError, match="coverage is True with variant 'cho'"):
        recurrent_seq2seq(5, 7, decoder="cho", coverage=True)
    with pytest.raises(ConfigError, match="num_heads is 2, score is 'general'.*expected a score of scaled_dot"):
        recurrent_seq2seq(5, 7, num_heads=2, score="general")
    with pytest.raises(ConfigError, match="model_dim is 512 and num_heads is 3"):
        recurrent_seq2seq(5, 7, num_heads=3, score="dot")
    with pytest.raises(ConfigError, match="5 source and 7 target"):
        recurrent_seq2seq(5, 7, share_embeddings=True)
    with pytest.raises(ConfigError, match="readout_dim 6 and embedding_dim 5"):
        recurrent_seq2seq(7, 7, **SMALL, readout_dim=6, share_embeddings=True)
    with pytest.raises(ConfigError, match="output_dim is 7, expected an even number"):
        recurrent_seq2seq(5, 7, hidden_dim=7)


def test_wrong_shapes_are_named():
    model = make("luong general")
    source, valid, target = example()
    with pytest.raises(ShapeError, match=r"source has dtype torch.float32, expected whole numbers.*source.long\(\)"):
        model(source.float(), valid, target)
    with pytest.raises(ShapeError, match=r"source has shape \(7,\), expected \(batch, position\)"):
        model(source[0], valid, target)
    with pytest.raises(ShapeError, match=r"source_valid has shape \(3, 6\).*\(3, 7\)"):
        model(source, valid[:, 1:], target)
    with pytest.raises(ShapeError, match=r"source_valid has dtype torch.int64"):
        model(source, valid.long(), target)
    with pytest.raises(ShapeError, match=r"target has shape \(2, 5\), expected \(3, time\)"):
        model(source, valid, target[:2])
    memory, state = model.start(source, valid)
    with pytest.raises(ShapeError, match=r"token has shape \(3, 1\), expected \(row\)"):
        model.step(target[:, :1], memory, state)
    for name in ("luong general", "cho gru"):
        model = make(name)
        memory, state = model.start(source, valid)
        rows = torch.tensor([0, 0, 1, 1])
        with pytest.raises(ShapeError, match="token has 4 rows, expected a multiple of the 3 sources"):
            model.step(target[rows, 0], memory, select(state, rows))
    with pytest.raises(ShapeError, match=r"inputs has shape \(2, 3, 4\), expected \(row, time, 5\)"):
        Recurrence(5, 7)(torch.zeros(2, 3, 4))
    with pytest.raises(ShapeError, match=r"covered has shape \(2, 5\), expected \(1, 5\)"):
        Coverage(3)(Memory(torch.zeros(1, 5, 3), torch.zeros(1, 5, 3), None), torch.zeros(2, 5))


def test_bfloat16():
    model = make("luong general").bfloat16()
    assert model(*example()).logits.isfinite().all()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sutskever lstm", "cho gru", "bahdanau additive", "luong local_p", "luong coverage"])
@torch._dynamo.config.patch(allow_rnn=True)  # unless asked, torch.compile leaves its own LSTM and GRU out of the graph
def test_a_step_compiles_whole(name):
    torch._dynamo.reset()
    model = make(name).float()
    source, valid, target = example()
    memory, state = model.start(source, valid)
    with torch.no_grad():
        compiled = torch.compile(lambda token, m, s: model.step(token, m, s)[:2], fullgraph=True, backend="aot_eager")
        logits, after = compiled(target[:, 0], memory, state)
        expected = model.step(target[:, 0], memory, state)
    torch.testing.assert_close(logits, expected.logits, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(after.recurrent[0], expected.state.recurrent[0], atol=1e-5, rtol=1e-4)
