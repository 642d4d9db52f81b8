"""Images of every kind become RGB of one size; those that cannot be read are named."""

import io
import struct
import sys
import zlib

import numpy as np
import pytest
from disguises import DISGUISES, no_waiting
from memory import peak_megabytes

from foci.data.images import files as images
from foci.data.images.files import GRAY, Images, Unreadable, image_files, read_image
from foci.data.splits import file_key
from foci.errors import MissingPackageError

Image = pytest.importorskip("PIL.Image")

RED, BLUE = (200, 30, 40), (20, 60, 210)


def two_colors(width=8, height=8):
    """Red on the left, blue on the right."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[:, : width // 2], pixels[:, width // 2 :] = RED, BLUE
    return Image.fromarray(pixels)


def saved(path, image, **options):
    image.save(path, **options)
    return path


def near(pixel, color, most=12):
    return np.abs(pixel.astype(int) - color).max() <= most


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("rgb.png", lambda image: image),
        ("palette.png", lambda image: image.quantize(8)),
        ("palette.gif", lambda image: image.quantize(8)),
        ("cmyk.tif", lambda image: image.convert("CMYK")),
        ("ycbcr.tif", lambda image: image.convert("YCbCr")),
        ("lossless.webp", lambda image: image),
        ("opaque.png", lambda image: image.convert("RGBA")),
    ],
)
def test_colors_survive_every_mode(name, make, tmp_path):
    found = read_image(saved(tmp_path / name, make(two_colors()), **({"lossless": True} if "webp" in name else {})), 8)
    assert found.shape == (8, 8, 3)
    assert found.dtype == np.uint8
    assert near(found[4, 1], RED)
    assert near(found[4, 6], BLUE)


def test_jpeg_of_rgb_and_cmyk(tmp_path):
    for mode in ("RGB", "CMYK", "L"):
        path = saved(tmp_path / f"{mode}.jpg", two_colors(64, 64).convert(mode), quality=95)
        found = read_image(path, 8)
        if mode == "L":
            assert (found[..., 0] == found[..., 2]).all()
        else:
            assert near(found[4, 0], RED, 25)
            assert near(found[4, 7], BLUE, 25)


def test_grey_of_1_8_16_and_32_bits(tmp_path):
    values = np.linspace(0, 255, 16).astype(np.uint8).reshape(4, 4)
    eight = read_image(saved(tmp_path / "8.png", Image.fromarray(values)), 4)
    assert (eight[..., 0] == values).all()
    sixteen = read_image(saved(tmp_path / "16.png", Image.fromarray(values.astype(np.uint16) * 257)), 4)
    assert (sixteen[..., 1] == values).all()
    floating = read_image(saved(tmp_path / "f.tif", Image.fromarray(values.astype(np.float32) / 255)), 4)
    assert np.abs(floating[..., 2].astype(int) - values).max() <= 1
    whole = read_image(saved(tmp_path / "i.tif", Image.fromarray(values.astype(np.int32) * 1000)), 4)
    assert np.abs(whole[..., 2].astype(int) - values).max() <= 1
    one = read_image(saved(tmp_path / "1.png", Image.fromarray(values > 127).convert("1")), 4)
    assert set(np.unique(one)) == {0, 255}


def test_alpha_is_over_white(tmp_path):
    pixels = np.zeros((4, 4, 4), np.uint8)
    pixels[:, :2] = (*RED, 255)
    found = read_image(saved(tmp_path / "a.png", Image.fromarray(pixels)), 4)
    assert near(found[0, 0], RED)
    assert near(found[0, 3], (255, 255, 255))
    palette = Image.fromarray(np.array([[0, 1]], np.uint8), mode="P")
    palette.putpalette([*RED, *BLUE])
    found = read_image(saved(tmp_path / "p.png", palette, transparency=1), 2)
    assert near(found[0, 1], (255, 255, 255)) or near(found[1, 1], (255, 255, 255))


def test_exif_turns_the_image(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned a quarter to the right: left becomes top
    found = read_image(saved(tmp_path / "a.png", two_colors(), exif=exif), 8)
    assert near(found[0, 4], RED)
    assert near(found[7, 4], BLUE)


def test_of_an_animation_the_first_frame_is_read(tmp_path):
    frames = [Image.new("RGB", (6, 6), color) for color in (RED, BLUE)]
    path = saved(tmp_path / "a.gif", frames[0], save_all=True, append_images=frames[1:])
    assert near(read_image(path, 6)[3, 3], RED)


def test_the_whole_image_is_in_the_square(tmp_path):
    found = read_image(saved(tmp_path / "a.png", two_colors(20, 10)), 10)
    assert (found[:2] == GRAY).all()
    assert (found[8:] == GRAY).all()
    assert near(found[5, 0], RED)
    assert near(found[5, 9], BLUE)
    thin = read_image(saved(tmp_path / "b.png", two_colors(300, 2)), 10)
    assert not (thin == GRAY).all()


def kinds_of_images(width, height):
    """An image of noise in every kind that is converted in its own way, by the name of its file."""
    noise = np.random.default_rng(width).integers(0, 256, (height, width, 4), np.uint8)
    colors, gray = Image.fromarray(noise[..., :3]), noise[..., 0].astype(np.float32)
    gray[2, 3] = np.nan
    exif = Image.Exif()
    exif[0x0112] = 6
    return {
        "a.png": (colors, {}),
        "alpha.png": (Image.fromarray(noise), {}),
        "palette.png": (colors.quantize(11), {"transparency": 3}),
        "16.png": (Image.fromarray(noise[..., 0].astype(np.uint16) * 257), {}),
        "cmyk.tif": (colors.convert("CMYK"), {}),
        "f.tif": (Image.fromarray(gray * 1000 - 7), {}),
        "turned.png": (colors, {"exif": exif}),
    }


@pytest.mark.parametrize("name", kinds_of_images(5, 5))
def test_strips_of_an_image_are_the_image(name, tmp_path, monkeypatch):
    """What is computed strip by strip is what is computed at once, whether it becomes smaller or larger."""
    image, options = kinds_of_images(61, 43)[name]
    path = saved(tmp_path / name, image, **options)
    copy = tmp_path / f"copy-{name}"
    copy.write_bytes(path.read_bytes() + b"another file")
    names, sizes = [str(path), str(copy)], (5, 7, 16, 42, 61, 80)
    whole, keys = [read_image(path, size) for size in sizes], images.same_pixels(names)
    assert len({*keys} - {None}) == 1
    monkeypatch.setattr(images, "_STRIP", 130)
    for size, expected in zip(sizes, whole, strict=True):
        assert np.array_equal(read_image(path, size), expected)
    assert images.same_pixels(names) == keys


def test_a_large_image_is_held_once(tmp_path):
    """Decoded it has 36 MB; whole copies of it in other color spaces took four times as much beside it."""
    rows = np.zeros((3000, 3000, 4), np.uint8)
    rows[:, ::7] = 200
    path = saved(tmp_path / "a.png", Image.fromarray(rows), compress_level=1)
    del rows
    read_image(saved(tmp_path / "b.png", two_colors()), 8)
    assert peak_megabytes(lambda: read_image(path, 64)) < 110


def bomb(side):
    """A small PNG file that declares many pixels."""

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    lines = zlib.compress(b"\0" * (side * (side // 8 + 1)), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", lines) + chunk(b"IEND", b"")


def test_unreadable_images_say_why(tmp_path):
    good = saved(tmp_path / "good.png", two_colors())
    raw = good.read_bytes()
    photo = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)).save(photo, "JPEG")
    for name, content, reason in (
        ("missing.png", None, "there is no such file"),
        ("empty.png", b"", "the file is empty"),
        ("text.png", b"no image at all", "not an image, or a damaged one"),
        ("cut.png", raw[: len(raw) // 2], "not an image, or a damaged one"),
        ("cut.jpg", photo.getvalue()[:600], "not an image, or a damaged one"),
        ("bomb.png", bomb(9000), "9000 × 9000 pixels, expected at most 67,108,864"),
        ("great.png", bomb(14_000), "too many pixels"),
    ):
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content)
        found = read_image(path, 8)
        assert isinstance(found, Unreadable), name
        assert reason in str(found)
        assert str(path) in str(found)
    assert isinstance(read_image(tmp_path, 8), Unreadable)
    assert isinstance(read_image(good, 8, max_pixels=63), Unreadable)
    assert isinstance(read_image("drawn:nonsense", 8), Unreadable)
    assert isinstance(read_image("drawn:two/train/0/1", 8), Unreadable)


@pytest.mark.parametrize("place", range(5))
def test_flipped_bytes_never_raise(place, tmp_path):
    chance = np.random.default_rng(place)
    for name, options in (("a.png", {}), ("a.jpg", {}), ("a.gif", {}), ("a.tif", {"compression": "tiff_lzw"})):
        path = saved(tmp_path / name, two_colors(16, 16), **options)
        raw = bytearray(path.read_bytes())
        for at in chance.integers(0, len(raw), 6):
            raw[at] = int(chance.integers(256))
        path.write_bytes(bytes(raw))
        assert isinstance(read_image(path, 8), Unreadable | np.ndarray)


def test_many_images_leave_the_unreadable_ones_out(tmp_path, monkeypatch):
    names = [str(saved(tmp_path / f"{number}.png", Image.new("RGB", (4, 4), (number, 0, 0)))) for number in range(7)]
    (tmp_path / "3.png").write_bytes(b"")
    said = []
    found = Images.load([*names, str(tmp_path / "none.png")], 4, log=said.append)
    assert found.kept == [0, 1, 2, 4, 5, 6]
    assert found.pixels[:, 0, 0, 0].tolist() == [0, 1, 2, 4, 5, 6]
    assert "3.png" in said[0]
    assert said[-1] == "2 of 8 images cannot be read and are left out"
    Images.load(names, 4, log=said.append)
    assert said[-1] == "1 of 7 images cannot be read and is left out"
    monkeypatch.setattr(images, "IN_MEMORY", 10)
    mapped = Images.load(names[:3], 4)
    assert isinstance(mapped.pixels, np.memmap)
    assert (mapped.pixels == found.pixels[:3]).all()


def test_without_pillow_drawn_scenes_are_read_and_files_name_the_package(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    assert read_image("drawn:one/train/0/5", 12).shape == (12, 12, 3)
    with pytest.raises(MissingPackageError, match=r"pip install 'foci\[vision\]'"):
        read_image(tmp_path / "a.png", 8)


@pytest.mark.parametrize("disguise", DISGUISES)
def test_pipes_and_devices_are_no_images(tmp_path, disguise):
    """Neither where one is named nor where a folder is listed, of which files without an ending are opened."""
    for name in ("a.png", "b"):
        disguise(tmp_path / name)
    with no_waiting():
        assert image_files(tmp_path) == ([str(tmp_path / "a.png")], [str(tmp_path / "b")])
        assert "is a pipe or a device, expected a regular file" in read_image(tmp_path / "a.png", 8).reason
        assert file_key(str(tmp_path / "a.png")) == "a.png"
