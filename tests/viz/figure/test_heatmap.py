"""Heat maps: what is drawn, what is refused, and how files appear."""

import warnings

import matplotlib.image
import numpy as np
import pytest
import torch
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from fontTools.ttLib import TTFont
from matplotlib import font_manager
from matplotlib.figure import Figure

from foci.errors import ConfigError, DataError, MissingPackageError, ShapeError
from foci.viz import colors as colors
from foci.viz import heatmap
from foci.viz.figure import fonts

WEIGHTS = np.array([[0.7, 0.2, 0.1], [0.0, 0.5, 0.5]])


def colors_of(path) -> set[tuple[int, int, int]]:
    """The colors that fill more than a hundred pixels."""
    pixels = (matplotlib.image.imread(path)[..., :3] * 255).round().astype(int).reshape(-1, 3)
    found, counts = np.unique(pixels, axis=0, return_counts=True)
    return {tuple(color) for color in found[counts > 100].tolist()}


def hatched(path) -> bool:
    """Whether there are lines in the color of hatching."""
    pixels = (matplotlib.image.imread(path)[..., :3] * 255).round().astype(int)
    line = tuple(bytes.fromhex(colors.HATCH[1:]))
    return bool((np.abs(pixels - line).max(axis=-1) <= 12).sum() > 200)


@pytest.mark.parametrize(
    ("kind", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF"), ("PNG", b"\x89PNG")]
)
def test_writes_the_kind_its_name_ends_in(kind, start, tmp_path):
    path = heatmap(WEIGHTS, tmp_path / "new" / f"weights.{kind}", rows=["a", "b"], columns=["x", "y", "z"])
    assert path.read_bytes().startswith(start)
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_colors_are_the_weights_and_exact_zeros_are_hatched(tmp_path):
    found = colors_of(heatmap([[1.0, 0.5], [1e-9, 0.0]], tmp_path / "weights.png"))
    for share in (0.0, 0.5, 1.0):
        assert any(np.allclose(color, colors.rgb(share), atol=1.5) for color in found)
    assert hatched(tmp_path / "weights.png")
    assert not hatched(heatmap([[1.0, 0.5], [0.25, 0.1]], tmp_path / "full.png"))


def test_in_grey_print_exactly_0_and_weight_1_differ(tmp_path):
    """Both were light in viridis with gray for 0: 0.90 and 0.89."""
    gray = {}
    for name, weights in (("one", [[1.0, 1.0]]), ("zero", [[0.0, 0.0]])):
        pixels = matplotlib.image.imread(heatmap(weights, tmp_path / f"{name}.png"))[..., :3]
        middle = pixels[20:40, 20:60]  # within the cells
        gray[name] = float((middle @ np.array([0.299, 0.587, 0.114])).mean())
    assert gray["one"] < 0.2
    assert 0.75 < gray["zero"] < 1.0


@pytest.mark.parametrize("shape", [(3,), (2, 3), (5, 2, 3), (7, 1, 1), (1, 1), (1, 200, 300)])
def test_draws_any_of_its_shapes(shape, tmp_path):
    assert heatmap(torch.rand(shape), tmp_path / "weights.png").stat().st_size > 1000


def test_all_weights_zero_can_be_drawn(tmp_path):
    assert hatched(heatmap(np.zeros((2, 2)), tmp_path / "weights.png"))


def test_the_same_weights_give_the_same_file(tmp_path):
    for kind in ("png", "svg", "pdf"):
        files = [heatmap(WEIGHTS, tmp_path / f"{number}.{kind}").read_bytes() for number in range(2)]
        assert files[0] == files[1]


def test_labels_are_drawn_as_they_are(tmp_path, monkeypatch):
    """Two $ are no formula; long labels are cut; of many numbers some are shown."""
    figures = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda figure, *a, **k: (figures.append(figure), save(figure, *a, **k)))
    columns = ["$5 to $6", "x" * 40, "$\\frac{$"]
    heatmap(WEIGHTS, tmp_path / "a.svg", columns=columns, rows=["a_b^c", ""], title="100 % $", texts=[["$"] * 3] * 2)
    shown = [text.get_text() for text in figures[0].axes[0].get_xticklabels()]
    assert shown == ["$5 to $6", "x" * 27 + "…", "$\\frac{$"]
    heatmap(np.ones((1, 130)), tmp_path / "b.svg", columns=[str(n) for n in range(130)])
    shown = [text.get_text() for text in figures[1].axes[0].get_xticklabels()]
    assert shown == [str(number) for number in range(0, 130, 5)]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"weights": np.zeros((2, 3, 4, 5))}, ShapeError, r"\(2, 3, 4, 5\).*weights.dense\(\)\[0\]"),
        ({"weights": np.zeros((0, 3))}, ShapeError, r"\(0, 3\)"),
        ({"weights": np.array(1.0)}, ShapeError, r"shape \(\)"),
        ({"weights": [[np.nan, 1.0]]}, DataError, "NaN"),
        ({"rows": ["a"]}, ShapeError, "rows has 1 labels, expected 2"),
        ({"columns": ["a", "b"]}, ShapeError, "columns has 2 labels, expected 3"),
        ({"panels": ["a", "b"]}, ShapeError, "panels has 2 labels, expected 1"),
        ({"texts": [["a", "b", "c"], ["d"]]}, ShapeError, "expected 2 × 3"),
        ({"path": "weights.jpg"}, ConfigError, r"weights.jpg.*\.png, \.svg, \.pdf"),
        ({"path": "weights"}, ConfigError, "ends in"),
    ],
)
def test_refuses_what_it_cannot_draw(arguments, error, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=message):
        heatmap(**({"weights": WEIGHTS, "path": "weights.png"} | arguments))
    assert not list(tmp_path.iterdir())


def test_a_picture_that_fails_leaves_the_old_one(tmp_path, monkeypatch):
    path = heatmap(WEIGHTS, tmp_path / "weights.png")
    before = path.read_bytes()

    def half(figure, target, **options):
        target.write_bytes(b"half a pict")
        raise OSError("no space left on device")

    monkeypatch.setattr(Figure, "savefig", half)
    with pytest.raises(OSError, match="no space"):
        heatmap(WEIGHTS.T, path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_without_matplotlib_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(MissingPackageError, match=r"foci\[viz\]"):
        heatmap(WEIGHTS, tmp_path / "weights.png")


def font_with(characters: str, name: str, path) -> str:
    """A tiny font in which each of the characters is a square."""
    pen = TTGlyphPen(None)
    for move, point in zip((pen.moveTo, pen.lineTo, pen.lineTo, pen.lineTo), ((0, 0), (0, 700), (700, 700), (700, 0))):
        move(point)
    pen.closePath()
    names = [".notdef", *(f"u{ord(character):04X}" for character in characters)]
    font = FontBuilder(1000, isTTF=True)
    font.setupGlyphOrder(names)
    font.setupCharacterMap({ord(character): f"u{ord(character):04X}" for character in characters})
    font.setupGlyf(dict.fromkeys(names, pen.glyph()))
    font.setupHorizontalMetrics(dict.fromkeys(names, (800, 0)))
    font.setupHorizontalHeader(ascent=800, descent=-200)
    font.setupNameTable({"familyName": name, "styleName": "Regular", "uniqueFontIdentifier": name, "fullName": name})
    font.setupOS2()
    font.setupPost()
    font.save(path)
    return str(path)


@pytest.fixture
def only_ships_with_matplotlib(monkeypatch):
    """As on a machine without fonts for Chinese."""
    own = [font for font in font_manager.fontManager.ttflist if "matplotlib" in font.fname]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", own)
    monkeypatch.setattr(font_manager, "findSystemFonts", list)


def test_without_a_font_it_says_what_to_install(only_ships_with_matplotlib, tmp_path):
    with pytest.warns(UserWarning, match="no font has 靐, 齉, 龘: .*fonts-noto-cjk") as caught:
        heatmap(WEIGHTS, tmp_path / "weights.png", columns=["龘", "靐", "齉"])
    assert len(caught) == 1
    assert (tmp_path / "weights.png").exists()


def test_finds_the_fonts_that_have_the_characters(only_ships_with_matplotlib, tmp_path):
    for characters, name in (("中文", "Some Font"), ("中文", "WenQuanYi Zen Hei"), ("的", "Another")):
        font_manager.fontManager.addfont(font_with(characters, name, tmp_path / f"{name}.ttf"))
    assert fonts.choose("plain ασя ∇")[0] == ["DejaVu Sans"]
    assert fonts.choose("中 of\n文")[0] == ["DejaVu Sans", "WenQuanYi Zen Hei"]
    assert fonts.choose("中的")[0] == ["DejaVu Sans", "WenQuanYi Zen Hei", "Another"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        heatmap(WEIGHTS, tmp_path / "weights.pdf", columns=["中", "文", "的"], rows=["a", "中a"])


def test_a_font_installed_after_matplotlib_made_its_list_is_found(only_ships_with_matplotlib, tmp_path, monkeypatch):
    new = font_with("中文", "Just Installed", tmp_path / "new.ttf")
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: [new])
    assert fonts.choose("中") == (["DejaVu Sans", "Just Installed"], set())


def test_without_any_chinese_font_the_commonest_characters_are_drawn(only_ships_with_matplotlib, tmp_path):
    """As on a machine that has just been set up: the first picture of `make demo` is in Chinese."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        families, missing = fonts.choose("2024年5月3日，每千克12.50美元")
        heatmap(WEIGHTS, tmp_path / "weights.png", columns=["年", "月", "日"])
    assert families == ["DejaVu Sans", "Foci Sans SC Subset"]
    assert missing == set()


def test_the_last_resort_has_level_1_of_gb_2312_and_its_license():
    level_1 = [bytes([0xA0 + row, 0xA0 + cell]) for row in range(16, 56) for cell in range(1, 95)]
    characters = {code.decode("gb2312") for code in level_1 if code.decode("gb2312", errors="ignore")}
    assert len(characters) == 3755
    font = TTFont(fonts.LAST_RESORT)
    assert characters <= set(map(chr, font.getBestCmap()))
    assert fonts.LAST_RESORT.stat().st_size < 1_500_000
    names = {record.nameID: record.toUnicode() for record in font["name"].names}
    assert "Source" not in names[1] + names[4] + names[6]  # the reserved name
    assert "Noto" not in names[1] + names[4] + names[6]
    license = (fonts.LAST_RESORT.parent / "OFL.txt").read_text(encoding="utf-8")
    assert "SIL OPEN FONT LICENSE Version 1.1" in license
    assert "Reserved Font Name 'Source'" in license


def test_an_installed_font_and_the_package_come_before_the_last_resort(
    only_ships_with_matplotlib, tmp_path, monkeypatch
):
    packaged = font_with("中文", "Of The Package", tmp_path / "packaged.otf")
    monkeypatch.setattr(fonts, "_FURTHER", (fonts._installed, lambda: [packaged], fonts._own))
    assert fonts.choose("中") == (["DejaVu Sans", "Of The Package"], set())
    font_manager.fontManager.addfont(font_with("中文", "Noto Sans CJK SC", tmp_path / "installed.ttf"))
    assert fonts.choose("中") == (["DejaVu Sans", "Noto Sans CJK SC"], set())
    assert fonts.choose("中年") == (["DejaVu Sans", "Noto Sans CJK SC", "Foci Sans SC Subset"], set())


def test_the_package_is_found_by_its_files(tmp_path, monkeypatch):
    folder = tmp_path / "noto_cjk_sans_otc-0.0.1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: noto-cjk-sans-otc\nVersion: 0.0.1\n")
    (folder / "RECORD").write_text("noto_cjk_sans_otc/NotoSansCJK-Regular.ttc,,\nnoto_cjk_sans_otc/__init__.py,,\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert fonts._of_package() == [str(tmp_path / "noto_cjk_sans_otc" / "NotoSansCJK-Regular.ttc")]


def test_a_given_width_is_the_width_of_the_file(tmp_path):
    for width in (3.3, 7.0):
        path = heatmap(WEIGHTS, tmp_path / "weights.png", rows=["a", "b"], columns=["x", "y", "z"], width=width)
        assert matplotlib.image.imread(path).shape[1] == pytest.approx(150 * width, abs=1)
    with pytest.raises(ConfigError, match="width is 0.5, expected at least 1.5"):
        heatmap(WEIGHTS, tmp_path / "weights.png", width=0.5)


def test_panels_of_another_scale_have_their_own_colors(monkeypatch, tmp_path):
    figures = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda figure, *a, **k: (figures.append(figure), save(figure, *a, **k)))
    stack = np.stack([WEIGHTS, 10 * WEIGHTS, WEIGHTS])
    heatmap(stack, tmp_path / "a.png", scale=["weight", "feature", "weight"])
    images = [axes.images[0] for axes in figures[0].axes if axes.images and axes.get_subplotspec() is not None]
    assert [image.norm.vmax for image in images[:3]] == [0.7, 7.0, 0.7]
    names = {(axes.get_ylabel() + axes.get_xlabel()).replace("\n", " ") for axes in figures[0].axes} - {""}
    assert names == {"weight  (hatched: exactly 0)", "feature  (hatched: exactly 0)"}
    with pytest.raises(ShapeError, match="scale has 2 names, expected one or 3"):
        heatmap(stack, tmp_path / "a.png", scale=["weight", "feature"])
