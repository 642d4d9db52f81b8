"""The checks that every sequence-to-sequence model must pass."""

import torch
from torch import Tensor, nn

from foci.decoding import select

PAD, BOS, EOS = 0, 1, 2
B, S, T, SOURCE_VOCABULARY, TARGET_VOCABULARY = 3, 7, 5, 17, 19
LENGTHS = (7, 4, 1)


def generic(model: nn.Module) -> nn.Module:
    """The model in float64 and eval, with no parameter at 0."""
    torch.manual_seed(3)
    model = model.double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    return model


def example(lengths=LENGTHS, size: int = S, time: int = T) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    batch = len(lengths)
    source = torch.randint(3, SOURCE_VOCABULARY, (batch, size), generator=generator)
    valid = torch.arange(size) < torch.tensor(lengths).unsqueeze(-1)
    target = torch.randint(3, TARGET_VOCABULARY, (batch, time), generator=generator)
    target[:, :1] = BOS
    return source.masked_fill(~valid, PAD), valid, target


@torch.no_grad()
def check_steps_equal_teacher_forcing(model: nn.Module, hypotheses: int) -> None:
    """K targets per source, whose rows are permuted before every step, against one pass over all."""
    source, valid, _ = example()
    generator = torch.Generator().manual_seed(7)
    targets = torch.randint(3, TARGET_VOCABULARY, (B, hypotheses, T), generator=generator)
    targets[:, :, 0] = BOS
    repeat = torch.arange(B).repeat_interleave(hypotheses)
    whole = model(source[repeat], valid[repeat], targets.flatten(0, 1))
    memory, state = model.start(source, valid)
    state = select(state, repeat)
    order = torch.arange(B * hypotheses)  # which target each row is writing
    for t in range(T):
        shuffled = torch.stack([torch.randperm(hypotheses, generator=generator) for _ in range(B)])
        moved = (shuffled + hypotheses * torch.arange(B).unsqueeze(-1)).flatten()
        state, order = select(state, moved), order[moved]
        stepped = model.step(targets.flatten(0, 1)[order, t], memory, state)
        state = stepped.state
        expected = whole.logits[order, t].log_softmax(-1)
        torch.testing.assert_close(stepped.logits.log_softmax(-1), expected, atol=1e-9, rtol=1e-9)
        crosses = [weights for name, weights in whole.attentions.items() if name.endswith("cross")]
        if not crosses:
            assert stepped.attention is None
            continue
        read = crosses[-1].dense()[order][..., t : t + 1, :]
        assert stepped.attention.shape == read.shape
        assert read.shape[-2:] == (1, S)
        torch.testing.assert_close(stepped.attention.dense(), read, atol=1e-9, rtol=1e-9)


@torch.no_grad()
def check_padded_equals_alone(model: nn.Module) -> None:
    source, valid, target = example()
    batched = model(source, valid, target)
    for b, length in enumerate(LENGTHS):
        row = slice(b, b + 1)
        alone = model(source[row, :length], valid[row, :length], target[row])
        torch.testing.assert_close(batched.logits[row], alone.logits, atol=1e-9, rtol=1e-9)
        for name, weights in alone.attentions.items():
            if name.endswith("self"):
                continue
            torch.testing.assert_close(batched.attentions[name].dense()[row, ..., :length], weights.dense())


@torch.no_grad()
def check_masked_source_is_not_seen(model: nn.Module) -> None:
    source, valid, target = example()
    hole = valid.clone()
    hole[0, 2] = False  # also a hole within the source
    for mask in (valid, hole):
        other = torch.where(mask, source, (source + 5) % SOURCE_VOCABULARY)
        assert not torch.equal(source, other)
        assert torch.equal(model(source, mask, target).logits, model(other, mask, target).logits)
    assert not torch.allclose(model(source, hole, target).logits[0], model(source, valid, target).logits[0])


def check_gradients_with_an_empty_source(model: nn.Module, anomaly: bool = False) -> None:
    source, valid, target = example(lengths=(4, 0, S))
    model.train()
    with torch.autograd.set_detect_anomaly(anomaly):  # no NaN on the way either, not even one that is cleared later
        predicted = model(source, valid, target)
        loss = predicted.logits.log_softmax(-1)[..., 0].sum()
        for name, weights in predicted.attentions.items():
            assert name.endswith("self") or (weights.dense()[1] == 0).all()
            loss = loss + (0.0 if weights.log_prob is None else weights.log_prob.sum())
        loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all(), name


def overfit(model: nn.Module, steps: int, rate: float) -> float:
    """The share of correct tokens after some steps on one batch of copied sources."""
    generator = torch.Generator().manual_seed(11)
    source = torch.randint(3, 17, (8, 5), generator=generator)
    valid = torch.ones_like(source, dtype=torch.bool)
    target = torch.cat([torch.full((8, 1), BOS), source.flip(1), torch.full((8, 1), EOS)], dim=1)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    model.train()
    for _ in range(steps):
        logits = model(source, valid, target[:, :-1]).logits
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)  # as ConvS2S is trained
        optimizer.step()
    model.eval()
    return (model(source, valid, target[:, :-1]).logits.argmax(-1) == target[:, 1:]).float().mean().item()
