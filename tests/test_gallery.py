"""The gallery: a picture for every mechanism, and captions that are true."""

import re

import matplotlib.image
import pytest
import torch

import foci
from foci.catalog import MECHANISMS
from foci.cli.gallery import index
from foci.gallery import SCENES, Scene
from foci.gallery.sentence import ALIGNED, ENGLISH, GERMAN
from foci.viz import heatmap
from foci_cli import main

FEATURES = {"squeeze_excitation", "cbam", "spatial", "conditional", "deformable"}
"""Scenes that also show features, which are not weights."""


@pytest.fixture(scope="module")
def scenes() -> dict[str, Scene]:
    return {name: scene() for name, scene in SCENES.items()}


def at(scene: Scene, row: str, column: str, panel: int = -1) -> float:
    """The weight of the first row and column with these labels."""
    weights = scene.weights.reshape(-1, *scene.weights.shape[-2:])[panel]
    return weights[list(scene.rows).index(row), list(scene.columns).index(column)].item()


def test_every_mechanism_has_a_scene():
    assert list(SCENES) == list(MECHANISMS)


def test_scenes_are_fit_to_be_drawn(scenes):
    for name, scene in scenes.items():
        weights = scene.weights
        assert weights.isfinite().all(), name
        assert weights.max() > 1.2 * weights.mean(), name  # something stands out
        assert len(scene.caption) > 60, name
        if name not in FEATURES:
            assert (weights >= 0).all(), name
            assert (weights.sum(dim=-1) < 1 + 1e-5).all() or name == "efficient_channel", name
            assert weights.max() > 0.3, name


def test_scenes_are_the_same_each_time(scenes):
    for name in ("dot", "hard", "additive", "ntm", "spatial"):
        torch.manual_seed(99)
        assert torch.equal(SCENES[name]().weights, scenes[name].weights), name


def test_scenes_are_computed_by_their_own_mechanism(monkeypatch):
    asked = []
    build = foci.build
    for module in ("hard_and_sparse", "heads", "images", "memory", "pairs", "pools", "scores", "windows"):
        monkeypatch.setattr(
            f"foci.gallery.{module}.build", lambda name, **sizes: (asked.append(name), build(name, **sizes))[1]
        )
    for name in set(MECHANISMS) - {"additive", "concat", "location", "location_aware"}:  # those take a while
        asked.clear()
        SCENES[name]()
        assert name in asked


def test_what_the_caption_says_of_points(scenes):
    feature, large, small, *coarse = scenes["deformable"].weights
    assert [feature[7, x].item() for x in (7, 8, 16, 17)] == [0, 1, 1, 0], "the edges of the disc"
    assert large.nonzero().tolist() == [[7, 8], [7, 16]]
    assert small.nonzero().tolist() == [[3, 1], [3, 2], [3, 4], [3, 5]]
    for map in coarse:
        assert 0 < map.sum() / 4 < large.sum()


def test_what_the_caption_says_of_content_and_place(scenes):
    feature, content, place, both, column = scenes["conditional"].weights
    left, right = (feature * part for part in (torch.arange(20) < 10, torch.arange(20) >= 10))
    torch.testing.assert_close((content * left).sum(), (content * right).sum())
    assert (content * feature).sum() > 0.9
    assert divmod(place.argmax().item(), 20) == (5, 13)
    assert (place * right).sum() < 0.6
    assert (both * right).sum() > 0.9
    torch.testing.assert_close(column, column[:1].expand_as(column))
    assert column[0].argmax() == 13


def test_what_the_captions_say_of_scores(scenes):
    for row in ("der", "die"):
        shares = scenes["dot"].weights[GERMAN.index(row), [1, 3, 7]]
        assert shares.sum() > 0.9
        assert shares.min() > 0.2
    assert scenes["scaled_dot"].weights.max() < 0.6 * scenes["dot"].weights.max()
    assert scenes["additive"].weights.argmax(dim=-1).tolist() == ALIGNED
    assert scenes["location"].weights.argmax(dim=-1).tolist() == ALIGNED
    assert at(scenes["concat"], "die", "the") == pytest.approx(1 / 3, abs=0.05)
    by_length, by_angle = scenes["cosine"].weights
    assert by_length[GERMAN.index("die"), 1] > 0.9
    assert by_angle[GERMAN.index("die"), 1] < 0.6
    content, aware = scenes["location_aware"].weights
    torch.testing.assert_close(content[2], content[3])
    assert aware[2, 5:9].sum() > 0.9
    assert aware[3, 9:13].sum() > 0.9


def test_what_the_captions_say_of_normalizers_and_foci(scenes):
    _, first, second, best = scenes["hard"].weights
    _, sampled, reached = scenes["gumbel"].weights
    for sample in (first, second, best, sampled):
        assert ((sample == 0) | (sample == 1)).all()
        assert (sample.sum(dim=-1) == 1).all()
    assert not torch.equal(first, second)
    # The gradient of the sampled weight: y_c (1 - y_c) at the sampled cell, as much as at all others together.
    torch.testing.assert_close(2 * (reached * sampled).sum(dim=-1), reached.sum(dim=-1))
    assert (reached > 0).all()
    zeros = {name: (scenes[name].weights[-1] == 0).float().mean() for name in ("sparsemax", "entmax")}
    assert zeros["sparsemax"] > zeros["entmax"] > 0.2
    assert ((scenes["sparsemax"].weights[-1] > 0).sum(dim=-1) <= 3).all()
    assert at(scenes["local_m"], "liest", "reads") == 0
    assert at(scenes["local_p"], "liest", "reads") > 0.9
    assert (scenes["local_p"].weights.sum(dim=-1) < 1).all()
    band = foci.masks.window(len(ENGLISH), len(ENGLISH), 2, 1)[0]
    assert torch.equal(scenes["sliding_window"].weights > 0, band)


def test_what_the_captions_say_of_heads_pools_and_pairs(scenes):
    before, after, kind, verb = scenes["multi_head"].weights
    assert (before.diagonal(-1) > 0.8).all()
    assert (after.diagonal(1) > 0.8).all()
    torch.testing.assert_close(before[0], torch.full((9,), 1 / 9))
    assert kind[2, [2, 5, 8]].sum() > 0.9
    assert (verb[:, 3] > 0.8).all()
    entropies = [foci.Weights.from_tensor(step).entropy().mean() for step in scenes["multi_step"].weights]
    assert entropies[0] > entropies[1] > entropies[2]
    judgement, about = scenes["pool"].weights
    assert scenes["pool"].texts[1][judgement[1].argmax()] == "delicious"
    assert [scenes["pool"].texts[row][about[row].argmax()] for row in range(3)] == ["evening", "soup", "service"]
    assert (scenes["pool"].weights[:, 1, 5] == 0).all()  # padding
    assert scenes["hierarchical"].weights[1].sum().item() == pytest.approx(1.0)
    assert scenes["attention_over_attention"].weights[-1].argmax() == 10  # kitchen
    assert at(scenes["word_by_word"], "makes", "plays") > 0.8
    assert at(scenes["word_by_word"], "music", "violin") > 0.8


def test_what_the_captions_say_of_memory_maps_and_tags(scenes):
    writing, reading = scenes["ntm"].weights
    assert writing[:6].argmax(dim=-1).tolist() == [1, 2, 3, 4, 5, 6]
    assert reading[6:].argmax(dim=-1).tolist() == [1, 2, 3, 4, 5, 6, 4, 1]
    assert reading[6:].amax(dim=-1).min() > 0.9
    kept = [float(title.rpartition(" ")[2]) for title in scenes["squeeze_excitation"].panels[4:]]
    assert min(kept[:2]) > 0.9
    assert max(kept[2:]) < 0.1
    by_channel = scenes["efficient_channel"].weights
    assert min(by_channel[5], by_channel[6]) > 0.9
    assert by_channel[11] < 0.6
    for scene, weights in (("cbam", 4), ("spatial", 2)):
        assert scenes[scene].weights[weights, 7, 12] > 0.9  # in the object
        assert scenes[scene].weights[weights, 14, 2] < 0.1  # beside it
    assert at(scenes["crf"], "New", "I-LOC", panel=0) > at(scenes["crf"], "New", "B-LOC", panel=0)
    assert at(scenes["crf"], "New", "B-LOC") > 0.7
    assert at(scenes["crf"], "Maria", "I-PER") == 0


@pytest.mark.slow
def test_the_command_draws_a_picture_of_each(tmp_path, capsys):
    folder = tmp_path / "some" / "pictures"
    state = torch.get_rng_state()
    assert main(["gallery", "--out", str(folder)]) == 0
    assert torch.equal(torch.get_rng_state(), state)
    assert {file.name for file in folder.iterdir()} == {*(f"{name}.png" for name in MECHANISMS), "index.html"}
    for name in MECHANISMS:
        pixels = matplotlib.image.imread(folder / f"{name}.png")
        assert min(pixels.shape[:2]) > 150, name
        assert pixels[..., :3].std() > 0.05, name
    out = capsys.readouterr().out
    assert str(folder / "index.html") in out
    assert all(str(folder / f"{name}.png") in out for name in MECHANISMS)


def test_the_page_shows_all_pictures_and_loads_nothing_else(scenes):
    page = index(scenes)
    assert re.findall(r'src="([^"]*)"', page) == [f"{name}.png" for name in MECHANISMS]
    assert re.findall(r'href="([^"]*)"', page) == [f"#{name}" for name in MECHANISMS]
    assert "http" not in page
    assert "prefers-color-scheme: dark" in page
    assert page.count("<section") == page.count("</section>") == len(MECHANISMS)


def test_names_are_set_as_code(scenes):
    page = index(scenes)
    assert "`" not in page
    assert "<code>der</code> and <code>die</code>" in page


def test_hard_and_gumbel_show_different_things(scenes):
    assert scenes["hard"].panels[1:] != scenes["gumbel"].panels[1:]
    assert scenes["hard"].weights.shape != scenes["gumbel"].weights.shape


def test_features_and_weights_have_their_own_scales(scenes):
    for name in ("cbam", "spatial"):
        assert set(scenes[name].scale) == {"feature", "weight"}
        shown = {panel for panel, scale in zip(scenes[name].panels, scenes[name].scale) if scale == "weight"}
        assert shown
        assert all("weight" in panel for panel in shown)


def test_the_page_escapes_its_texts(scenes):
    scene = Scene(weights=torch.ones(1, 1), caption='<script>alert("a & b")</script>')
    page = index(scenes | {"dot": scene})
    assert "<script" not in page
    assert "&lt;script&gt;alert(&quot;a &amp; b&quot;)&lt;/script&gt;" in page


def test_a_scene_holds_what_heatmap_takes():
    import inspect

    fields = set(Scene.__dataclass_fields__)
    assert fields - {"caption"} == set(inspect.signature(heatmap).parameters) - {"path", "title", "width", "gamma"}
