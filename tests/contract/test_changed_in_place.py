"""In-place changes after an attention never change its weights silently: they are detected, copied, or impossible."""

import pytest
import torch
from cases import attend_inputs, cases, make
from torch import nn

import foci
from foci.errors import StaleWeightsError

ATTEND = cases("attend")
QUESTIONS = {
    "dense": lambda weights: weights.dense(),
    "rows": lambda weights: weights.rows([0, 2]),
    "topk": lambda weights: weights.topk(2)[0],
    "argmax": lambda weights: weights.argmax(),
    "entropy": lambda weights: weights.entropy(),
    "mass": lambda weights: weights.mass(torch.ones((1,) * len(weights.shape), dtype=torch.bool)),
}


def answer(ask, weights):
    try:
        return ask(weights)
    except StaleWeightsError:
        return None


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("name", ATTEND)
def test_weights_stay_exact_or_say_so(name, train, inference):
    module, inputs = make(name), [one.clone() for one in attend_inputs(name)]
    with torch.inference_mode(inference), torch.set_grad_enabled(train and not inference):
        inputs = [one.clone() for one in inputs]
        weights = module(*inputs).weights
        before = {question: ask(weights) for question, ask in QUESTIONS.items()}
        for one in inputs:
            one.detach().zero_()
        for question, ask in QUESTIONS.items():
            after = answer(ask, weights)
            if after is not None:
                torch.testing.assert_close(after, before[question])
        if inference:
            assert answer(QUESTIONS["dense"], weights) is not None, "torch counts no changes here: a copy is needed"


@pytest.mark.parametrize("changed", ["query", "key"])
def test_the_error_names_what_was_changed(changed):
    parts = {"query": torch.randn(2, 3, 5), "key": torch.randn(2, 7, 5)}
    weights = foci.attend(parts["query"], parts["key"], torch.randn(2, 7, 5)).weights
    parts[changed] += 1
    for ask in QUESTIONS.values():
        with pytest.raises(StaleWeightsError, match=rf"the {changed} that .* changed in place .*x = x \+ output"):
            ask(weights)


def test_the_answer_of_a_dense_handle_is_guarded_too():
    weights = foci.attend(
        torch.randn(1, 3, 5), torch.randn(1, 7, 5), torch.randn(1, 7, 5), normalize="sparsemax"
    ).weights
    weights.dense().mul_(2)
    with pytest.raises(StaleWeightsError, match="the weights that"):
        weights.topk(1)


def test_heads_taken_before_a_change_notice_it():
    query = torch.randn(1, 2, 3, 5)
    one_head = foci.attend(query, query, query).weights.heads(1)
    mean = foci.attend(query, query, query).weights.mean_heads()
    query += 1
    for weights in (one_head, mean):
        with pytest.raises(StaleWeightsError):
            weights.dense()


def test_a_mask_that_a_decoder_opens_cell_by_cell():
    module = foci.build("multi_head", model_dim=8, num_heads=2).eval()
    source, mask, steps = torch.randn(1, 4, 8), torch.zeros(1, 1, 4, dtype=torch.bool), []
    for t in range(4):
        mask[..., t] = True
        steps.append(module(source[:, t : t + 1], source, mask=mask).weights)
    assert [int((step.dense() > 0).sum(dim=-1).max()) for step in steps] == [1, 2, 3, 4]


def test_a_large_mask_is_not_copied_but_watched():
    query, mask = torch.randn(1, 150, 5), torch.ones(1, 150, 150, dtype=torch.bool)
    weights = foci.attend(query, query, query, mask).weights
    mask[0, 3, 3] = False
    with pytest.raises(StaleWeightsError, match="the mask that"):
        weights.entropy()


class InPlaceResidual(nn.Module):
    def __init__(self, attention, times):
        super().__init__()
        self.attention = attention
        self.times = times

    def forward(self, x):
        for _ in range(self.times):
            x += self.attention(x, x).output
        return x


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", ["dot", "scaled_dot", "cosine", "general", "multi_head", "sliding_window", "local_m"])
def test_record_is_right_in_models_that_work_in_place(name, grad):
    sizes = {"model_dim": 6, "num_heads": 2} if name == "multi_head" else {"query_dim": 6, "key_dim": 6}
    sizes |= {"window": (1, 1)} if name == "sliding_window" else {"radius": 1} if name == "local_m" else {}
    torch.manual_seed(3)
    model, x, expected = InPlaceResidual(foci.build(name, **sizes), 2).eval(), torch.randn(2, 5, 6), []
    with torch.no_grad():
        now = x.clone()
        for _ in range(2):
            read = model.attention(now, now)
            expected.append(read.weights.dense())
            now = now + read.output
    with torch.set_grad_enabled(grad), foci.record(model) as tape:
        model(x.clone())
    for call, weights in enumerate(expected):
        torch.testing.assert_close(tape["attention", call].dense(), weights)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["scaled_dot", "multi_head"])
def test_compiled_handles_do_not_follow_their_inputs(name):
    torch._dynamo.reset()
    module, inputs = make(name), [one.clone() for one in attend_inputs(name)]
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        weights = compiled(*inputs).weights
        before = weights.dense()
        for one in inputs:
            one.zero_()
        torch.testing.assert_close(weights.dense(), before)
