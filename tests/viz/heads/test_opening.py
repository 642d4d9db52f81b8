"""The attention and the head that a trace is shown with: those that say most."""

import math

import numpy as np
import pytest
import torch

from foci.viz.heads.opening import Opening, opening
from foci.viz.terminal import render
from foci.viz.trace import Axis, Trace
from foci.weights import Weights

SOURCE = ["the", "cat", "saw", "the", "dog", "."]
TARGET = ["die", "Katze", "sah", "den", "Hund"]


def rows(concentration, seed, heads=3, shape=(5, 6)):
    return np.random.default_rng(seed).dirichlet(np.full(shape[1], concentration), (heads, shape[0])).astype(np.float32)


def handle(heads):
    return Weights.from_tensor(torch.from_numpy(heads)[None])


def sides(*layers, **options):
    attentions = {f"decoder.{number}.cross": handle(layer) for number, layer in enumerate(layers)}
    attentions["encoder.0.self"] = handle(rows(0.02, 9, shape=(6, 6)))  # sharper than all
    of = {"*.cross": ("target", "source"), "*.self": ("source", "source")}
    return Trace.from_handles(attentions, {"target": TARGET, "source": SOURCE}, of, **options)


def mutual_information(weights, without_itself=False):
    """Of row and column, rows being equally likely, in plain loops."""
    count = len(weights)
    total = 0.0
    for i, row in enumerate(weights):
        for j, weight in enumerate(row):
            mean = sum(other[j] for other in weights) / count
            if weight > 0 and not (without_itself and i == j):
                total += weight / count * math.log(weight / mean)
    return total


def test_between_two_sides_it_is_the_head_with_the_largest_mutual_information_of_any_layer():
    layers = [rows(3.0, 1), rows(0.3, 2), rows(1.0, 3)]
    found = sides(*layers).opening
    says = [[mutual_information(head) for head in layer] for layer in layers]
    layer, head = max(((one, two) for one in range(3) for two in range(3)), key=lambda at: says[at[0]][at[1]])
    assert layer == 1  # the last layer would be a poor guess
    assert (found.attention, found.head, found.reason) == (f"decoder.{layer}.cross", head, "most")
    assert found.nats == pytest.approx(max(map(max, says)), abs=1e-5)
    assert found.among == 9  # heads of the encoder are not compared with those between sides


def test_a_text_that_reads_itself_is_compared_without_what_each_reads_of_itself():
    weights = rows(0.4, 4, heads=4, shape=(6, 6))
    weights[2] = np.eye(6)  # says most, and of itself alone
    found = Trace.from_arrays(weights, SOURCE).opening
    says = [mutual_information(head, without_itself=True) for head in weights]
    assert found.head == int(np.argmax(says)) != 2
    assert found.nats == pytest.approx(max(says), abs=1e-5)


@pytest.mark.parametrize("window", [6, 3])
def test_causal_rows_and_windows_are_compared_on_what_they_can_read(window):
    near = np.tril(np.ones((6, 6))) * np.triu(np.ones((6, 6)), 1 - window)
    even = near / near.sum(-1, keepdims=True)
    first = np.eye(6)[[0, 0, 0] + [0] * 3] if window == 6 else even
    silent = Trace.from_arrays(np.stack([even, 0.5 * first + 0.5 * even]), SOURCE)
    assert silent.opening.reason == "nothing"  # by the plain mean of all rows they would say 0.5 nats and more
    weights = rows(0.5, 4, heads=3, shape=(6, 6)) * near
    weights /= weights.sum(-1, keepdims=True)
    weights = np.concatenate([weights, even[None]])
    found = Trace.from_arrays(weights, SOURCE).opening
    says = []
    for head in weights:
        total = 0.0
        for i in range(6):
            can = [j for j in range(6) if near[i, j]]
            means = {}
            for j in can:
                others = [k for k in range(6) if near[k, j]]
                means[j] = sum(head[k, j] * near[k].sum() for k in others) / len(others)
            for j in can:
                if j != i and head[i, j] > 0:
                    total += head[i, j] / 6 * math.log(head[i, j] / (means[j] / sum(means.values())))
        says.append(total)
    assert found.head == int(np.argmax(says))
    assert found.nats == pytest.approx(max(says), abs=1e-5)


def test_heads_that_read_by_position_are_taken_where_there_are_no_others():
    previous = np.eye(6, k=-1) * 0.9 + 0.1 / 6
    sharp = rows(0.6, 5, heads=1, shape=(6, 6))[0]
    found = Trace.from_arrays([[previous, sharp]], SOURCE).select(heads=[0, 1]).opening
    assert mutual_information(previous, without_itself=True) > found.nats
    assert (found.head, found.reason) == (1, "most")
    both = Trace.from_arrays([[sharp, previous, 0.99 * previous + 0.01 / 6]], SOURCE).select(heads=[1, 2])
    assert both.opening[:2] == ("attention.0", 0)  # the place of head 1
    assert both.opening.reason == "position"


def test_between_two_sides_an_alignment_is_no_reading_by_position():
    monotone = np.eye(5, 6) * 0.9 + 0.1 / 6
    assert sides(np.stack([rows(1.0, 6)[0], monotone.astype(np.float32)])).opening.head == 1


def test_of_heads_that_say_the_same_or_nothing_the_mean_is_shown():
    same = rows(0.3, 7, heads=1).repeat(3, axis=0)
    assert sides(same, rows(3.0, 1)).opening[:2] == ("decoder.0.cross", None)
    assert sides(same, rows(3.0, 1)).opening.reason == "tie"
    silent = rows(1.0, 8, shape=(1, 6)).repeat(5, axis=1)  # each head reads, whoever reads
    assert sides(silent, silent).opening[:4] == ("decoder.1.cross", None, None, "nothing")
    assert "the last of 2 layers · mean of 3 heads · target" in render(sides(silent, silent))


def test_one_row_cannot_be_compared_and_one_head_has_nothing_to_choose():
    pool = {"pool": handle(rows(1.0, 1, shape=(1, 6))), "other": handle(rows(0.1, 2, shape=(1, 6)))}
    axes = {"class": ["good"], "source": SOURCE}
    found = Trace.from_handles(pool, axes, {"*": ("class", "source")}).opening
    assert found[:4] == ("pool", None, None, "one row")
    assert Trace.from_arrays(rows(1.0, 1)[0], SOURCE, TARGET).opening == Opening("attention", None, None, "")
    both = {"premise": handle(rows(3.0, 1, 1)), "hypothesis": handle(rows(0.1, 2, 1).transpose(0, 2, 1))}
    axes = {"source": SOURCE, "other": TARGET}
    found = Trace.from_handles(both, axes, {"premise": ("other", "source"), "hypothesis": ("source", "other")}).opening
    assert found == Opening("premise", None, None, "")  # other sides are another question
    drawn = Trace.from_arrays(rows(0.2, 3, shape=(6, 6)), Axis.numbered("slots", 6)).opening
    assert drawn.reason == "most"  # positions of any kind


def test_of_relevance_it_is_the_last_layer_which_is_of_all():
    stack = Trace.from_arrays([[one] for one in rows(0.2, 1, shape=(6, 6))[::-1]], SOURCE)
    assert stack.opening.attention != "attention.2"
    assert stack.relevance("rollout").opening[:2] == ("attention.2", None)


@pytest.mark.parametrize("budget", [1 << 20, 60])
def test_of_weights_that_were_not_kept_the_rest_is_spread_evenly(budget):
    sharp, blunt = rows(0.1, 1), rows(5.0, 2)
    found = sides(blunt, sharp, budget=budget).opening
    assert found[0] == "decoder.1.cross"
    kept = Trace.from_arrays(np.stack([np.eye(6, k=-1) * 0.9 + 0.1 / 6, rows(0.6, 5, 1, (6, 6))[0]]), SOURCE, budget=40)
    assert kept.opening.head == 1  # the other reads the position before


def test_terminal_figure_and_page_show_it_and_a_named_attention_has_its_mean():
    trace = sides(rows(3.0, 1), rows(0.3, 2))
    found = trace.opening
    number = found.head
    assert f"decoder.1.cross · head {number} · says most of 6 heads" in render(trace)
    assert "mean of 3 heads" in render(trace, "decoder.1.cross")
    drawn = trace.plot().axes[0].images[0].get_array()
    assert np.allclose(np.asarray(drawn), trace.attention("decoder.1.cross").dense(found.head), atol=1e-6)
    assert "head 2" in render(trace.select(heads=[2]), "decoder.1.cross", head=0)  # heads keep their numbers


def test_it_is_found_once():
    trace = sides(rows(1.0, 1))
    assert trace.opening is trace.opening
    assert trace.opening == opening(trace)
