"""How far files are read is logged while that takes long: of plain and packed files, in every pass."""

import gzip
import lzma

import pytest

import foci
from foci.data import reading
from foci.data.lines import open_bytes, read_lines
from foci.data.reading import logged_reading
from foci.tasks.frame import config as configs
from foci.tasks.generate.config import GenerateConfig

LINES = [f"This is line {number} of a file that is read.\n" for number in range(9000)]


@pytest.fixture
def at_once(monkeypatch):
    """Log without waiting."""
    monkeypatch.setattr(reading, "SECONDS", 0.0)
    monkeypatch.setattr(reading, "SHARE", 0.0)


@pytest.mark.parametrize("pack", [open, gzip.open, lzma.open])
def test_every_pass_over_a_file_is_logged_with_its_share(pack, at_once, tmp_path):
    path = tmp_path / "a.txt"
    with pack(path, "wb") as file:
        file.write("".join(LINES).encode())
    messages = []
    with logged_reading("counting", messages.append):
        for _ in range(2):
            assert list(read_lines(path)) == [line.rstrip("\n") for line in LINES]
    size = path.stat().st_size
    first = [message for message in messages if "pass" not in message]
    second = [message for message in messages if "MB read, pass 2 over a.txt " in message]
    assert messages == first + second
    for half in (first, second):
        shares = [int(message.split()[-1].removesuffix("%")) for message in half]
        assert shares == sorted(shares)
        assert shares[-1] == 100
        assert len({*shares}) > min(size // (1 << 17), 3)
    assert all(message.startswith("counting: 0 MB read, a.txt ") for message in first)
    count = len(messages)
    with open_bytes(path) as file:
        assert file.read() == "".join(LINES).encode()
    assert len(messages) == count


def test_messages_become_rarer(monkeypatch, tmp_path):
    """The first comes after five seconds, and each at least a tenth of the time so far after the one before."""
    now = [0.0]
    monkeypatch.setattr(reading.time, "monotonic", lambda: now[0])
    moments = []
    with logged_reading("x", lambda text: moments.append(now[0])):
        state = reading._READING.get()
        for _ in range(1000):
            now[0] += 1.0
            state.advance(tmp_path, 1, 0.5)
    assert moments[:3] == [5.0, 10.0, 15.0]
    assert 20 < len(moments) < 60
    assert moments[-1] - moments[-2] >= 80


def test_a_stream_is_prepared_with_progress(at_once, tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("".join(LINES), encoding="utf-8")
    messages = []
    changes = {
        "data.path": str(path),
        "data.stream": True,
        "data.max_characters": None,
        "training.max_steps": 1,
        "training.eval_every": None,
    }
    foci.train("generate", configs.put(GenerateConfig.smallest, changes), out=tmp_path / "run", log=messages.append)
    for what in ("reading the data", "preparing the data", "digests of the data"):
        assert any(message.startswith(f"{what}: ") and message.endswith("a.txt 100%") for message in messages), what
    trained = messages[next(place for place, message in enumerate(messages) if "parameters" in message) :]
    assert not any(message.endswith("%") for message in trained)
