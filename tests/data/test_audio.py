"""Sound files, features and manifests: exact to Kaldi's own code, and safe with any file."""

import os
import struct
import sys
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from memory import peak_megabytes

from foci.data.audio import augment as audio_augment
from foci.data.audio import features as audio_features
from foci.data.audio.features import FilterBank, Statistics, normalized, read_features, with_deltas
from foci.data.audio.files import AudioError, Sound, Utterance, check_audible, read_header, read_sound, write_sound
from foci.data.audio.resample import resample, resample_blocks
from foci.data.audio.segments import cut_at_silences
from foci.errors import ConfigError, DataError
from foci.tasks.transcribe.data import (
    ShortFirstBatches,
    SpeechExamples,
    SpeechReader,
    compute_features,
    usable_utterances,
)
from foci.tasks.transcribe.reader import read_manifest

soundfile = pytest.importorskip("soundfile")
knf = pytest.importorskip("kaldi_native_fbank")


def tone(rate, seconds=0.7, pitch=440.0):
    time = np.arange(int(rate * seconds)) / rate
    return (0.5 * np.sin(2 * np.pi * pitch * time)).astype(np.float32)


# ---- reading


@pytest.mark.parametrize("ending", ["wav", "flac", "ogg", "mp3"])
@pytest.mark.parametrize("channels", [1, 2])
def test_every_format_gives_the_same_sound(tmp_path, ending, channels):
    path = tmp_path / f"a.{ending}"
    wave = tone(16000)
    soundfile.write(path, np.repeat(wave[:, None], channels, axis=1), 16000)
    sound = read_sound(path)
    assert sound.rate == 16000
    assert abs(sound.seconds - 0.7) < 0.11  # mp3 pads to whole frames
    spectrum = np.abs(np.fft.rfft(sound.samples[:8192]))
    assert abs(np.argmax(spectrum) * 16000 / 8192 - 440) < 3
    assert abs(np.abs(sound.samples).max() - 0.5) < 0.05
    assert read_header(path).channels == channels


def test_channels_are_averaged(tmp_path):
    left, right = tone(8000, pitch=300), tone(8000, pitch=500)
    soundfile.write(tmp_path / "a.wav", np.stack([left, right], axis=1), 8000, subtype="FLOAT")
    assert np.allclose(read_sound(tmp_path / "a.wav").samples, (left + right) / 2, atol=1e-6)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems allow no such names")
def test_a_name_that_is_not_text(tmp_path):
    soundfile.write(tmp_path / "a.wav", tone(16000), 16000)
    path = os.fsdecode(os.fsencode(tmp_path) + b"/a \xff\x1b[31m'\".wav")
    (tmp_path / "a.wav").rename(path)
    assert read_header(path).rate == 16000
    assert read_sound(path).seconds == pytest.approx(0.7)


def test_writing_and_reading_again(tmp_path):
    wave = tone(8000)
    assert np.allclose(read_sound(write_sound(tmp_path / "a.flac", Sound(wave, 8000))).samples, wave, atol=1e-4)
    with pytest.raises(DataError, match="cannot be written"):
        write_sound(tmp_path / "none" / "a.wav", Sound(wave, 8000))


def kind_of(path, **options):
    with pytest.raises(AudioError) as caught:
        read_sound(path, **options)
    assert str(path) in str(caught.value)
    return caught.value.kind


def kind_or_sound(path, max_seconds=9.0):
    try:
        sound = read_sound(path, max_seconds=max_seconds)
    except AudioError as error:
        return error.kind
    return "sound" if np.isfinite(sound.samples).all() and sound.seconds <= max_seconds else "too much"


def test_unusable_files_are_named_with_their_kind(tmp_path):
    assert kind_of(tmp_path / "none.wav") == "missing file"
    (tmp_path / "nothing.wav").write_bytes(b"")
    assert kind_of(tmp_path / "nothing.wav") == "empty file"
    (tmp_path / "text.wav").write_text("no sound at all")
    assert kind_of(tmp_path / "text.wav") == "broken file"
    soundfile.write(tmp_path / "none.flac", np.zeros(0), 8000)
    assert kind_of(tmp_path / "none.flac") in ("empty file", "broken file")
    soundfile.write(tmp_path / "a.flac", np.random.default_rng(0).standard_normal(9000) * 0.1, 8000)
    raw = bytearray((tmp_path / "a.flac").read_bytes())
    raw[3000:9000] = bytes(6000)
    (tmp_path / "a.flac").write_bytes(bytes(raw))
    assert kind_or_sound(tmp_path / "a.flac") in ("broken file", "sound")  # a decoder may give what is left
    soundfile.write(tmp_path / "nan.wav", np.full(100, np.nan), 8000, subtype="FLOAT")
    assert kind_of(tmp_path / "nan.wav") == "broken file"


def test_a_flac_bomb_is_refused(tmp_path):
    bomb = tmp_path / "bomb.flac"
    with soundfile.SoundFile(bomb, "w", samplerate=48000, channels=1, subtype="PCM_16") as file:
        for _ in range(40):
            file.write(np.zeros(48000 * 15, dtype=np.int16))
    assert bomb.stat().st_size < 200_000  # ten minutes
    assert kind_of(bomb, max_seconds=30) == "over-long file"
    raw = bytearray(bomb.read_bytes())
    raw[21] &= 0xF0  # the header no longer says how many samples there are
    raw[22:26] = bytes(4)
    bomb.write_bytes(bytes(raw))
    assert kind_of(bomb, max_seconds=30) in ("over-long file", "broken file", "empty file")
    raw[22:26] = struct.pack(">I", 100)  # it says there are 100: no more than that is read
    bomb.write_bytes(bytes(raw))
    assert kind_or_sound(bomb, max_seconds=30) in ("over-long file", "broken file", "sound")


@pytest.mark.parametrize(("place", "value"), [(24, 0), (24, 5), (24, 4_000_000_000), (22, 700)])
def test_absurd_headers_are_refused(tmp_path, place, value):
    path = tmp_path / "a.wav"
    soundfile.write(path, tone(8000), 8000)
    raw = bytearray(path.read_bytes())
    raw[place : place + (4 if place == 24 else 2)] = struct.pack("<I" if place == 24 else "<H", value)
    path.write_bytes(bytes(raw))
    assert kind_of(path) in ("absurd header", "broken file")


@settings(max_examples=60)
@given(data=st.binary(max_size=200), name=st.sampled_from(["a.wav", "a.flac", "a.ogg", "a.mp3", "a.mfc", "a.npy"]))
def test_any_bytes_give_sound_or_an_audio_error(tmp_path_factory, data, name):
    path = tmp_path_factory.mktemp("bytes") / name
    starts = {
        "a.wav": b"RIFF\x24\x00\x00\x00WAVEfmt ",
        "a.flac": b"fLaC",
        "a.ogg": b"OggS",
        "a.mp3": b"\xff\xfb\x90\x00",
    }
    path.write_bytes(starts.get(name, b"\x93NUMPY\x01\x00" if name == "a.npy" else b"") + data)
    try:
        found = read_features(path) if name in ("a.mfc", "a.npy") else read_sound(path, max_seconds=5.0).samples
    except AudioError:
        return
    assert np.isfinite(found).all()


def test_silence_is_an_error():
    check_audible("a", 0.3)
    with pytest.raises(AudioError, match="is silent"):
        check_audible("a", 0.0)


# ---- resampling


@pytest.mark.parametrize(
    ("rate", "new_rate"),
    [(44100, 16000), (48000, 16000), (16000, 8000), (8000, 16000), (11025, 8000), (10007, 8009), (1100, 1000)],
)
def test_resampling_a_sine_sweep(rate, new_rate):
    """Below 0.88 of the lower Nyquist frequency a sine stays itself; above 1.02 of it nothing is left."""
    seconds = 0.4 * 8000 / min(rate, new_rate, 8000)
    time = np.arange(int(rate * seconds)) / rate
    half = min(rate, new_rate) / 2
    heard = 0
    for frequency in np.linspace(0.02, 0.98, 13) * rate / 2:
        found = resample(np.sin(2 * np.pi * frequency * time).astype(np.float32), rate, new_rate)
        assert len(found) == -(-len(time) * new_rate // rate)
        middle = slice(len(found) // 4, -len(found) // 4)
        if frequency < 0.88 * half:
            expected = np.sin(2 * np.pi * frequency * np.arange(len(found)) / new_rate)
            assert np.abs(found - expected)[middle].max() < 1e-4, frequency
            heard += 1
        elif frequency > 1.02 * half:
            assert np.abs(found)[middle].max() < 1e-4, frequency  # 80 dB below
            heard += 1
    assert heard >= 10


def test_resampling_keeps_a_constant_and_the_same_rate():
    assert np.allclose(resample(np.ones(4000, np.float32), 3000, 2000)[200:-200], 1.0, atol=1e-6)
    wave = tone(8000)
    assert resample(wave, 8000, 8000) is wave
    assert len(resample(np.zeros(0, np.float32), 8000, 16000)) == 0


@pytest.mark.parametrize(("rate", "new_rate"), [(44100, 16000), (8000, 16000), (16000, 8000), (10007, 8009), (11, 13)])
def test_resampling_in_blocks_is_resampling(rate, new_rate):
    chance = np.random.default_rng(rate)
    wave = chance.standard_normal(23_011).astype(np.float32)
    cuts = np.sort(chance.integers(0, len(wave), 11))
    for blocks in (np.split(wave, cuts), np.split(wave, range(1, 7)), [wave[:1]], [wave[:0]]):
        found = np.concatenate([np.zeros(0, np.float32), *resample_blocks(iter(blocks), rate, new_rate)])
        np.testing.assert_allclose(found, resample(np.concatenate(blocks), rate, new_rate), atol=1e-5)


# ---- features


@pytest.mark.parametrize(
    "bank",
    [
        FilterBank(),
        FilterBank(rate=8000, bins=23),
        FilterBank(rate=8000, bins=40, lowest=60.0, highest=-200.0),
        FilterBank(rate=16000, bins=13, frame=20.0, shift=12.5, highest=7000.0),
    ],
    ids=str,
)
def test_filter_banks_are_those_of_kaldi(bank):
    chance = np.random.default_rng(3)
    samples = (0.2 * tone(bank.rate, 1.13, 317.0) + 0.1 * chance.standard_normal(int(1.13 * bank.rate))).astype(
        np.float32
    )
    options = knf.FbankOptions()
    options.frame_opts.samp_freq = bank.rate
    options.frame_opts.frame_length_ms, options.frame_opts.frame_shift_ms = bank.frame, bank.shift
    options.frame_opts.dither = 0
    options.mel_opts.num_bins = bank.bins
    options.mel_opts.low_freq, options.mel_opts.high_freq = bank.lowest, bank.highest
    kaldi = knf.OnlineFbank(options)
    kaldi.accept_waveform(bank.rate, (samples * 32768).tolist())
    kaldi.input_finished()
    expected = np.stack([kaldi.get_frame(number) for number in range(kaldi.num_frames_ready)])
    found = bank(samples)
    assert found.shape == expected.shape
    # Both compute in single precision, whose rounding shows where a filter has next to no energy.
    assert np.abs(found - expected).max() < 1e-3
    assert np.quantile(np.abs(found - expected), 0.99) < 5e-5
    assert bank(samples[: bank.sizes[0] - 1]).shape == (0, bank.bins)
    silent = bank(np.zeros(bank.rate, np.float32))
    assert np.allclose(silent, np.log(np.finfo(np.float32).eps))


@pytest.mark.parametrize("shift", [10.0, 40.0])
def test_features_in_blocks_are_those_of_the_whole(monkeypatch, shift):
    """Also where frames are further apart than they are long, and more than are computed at a time."""
    monkeypatch.setattr(audio_features, "_FRAMES", 13)
    chance = np.random.default_rng(7)
    bank = FilterBank(rate=8000, bins=23, shift=shift, dynamic_range=30.0)
    wave = (chance.standard_normal(9_001) * np.linspace(0, 1, 9_001) ** 4).astype(np.float32)
    size, step = bank.sizes
    alone = [bank._replace(dynamic_range=None)(wave[at : at + size]) for at in range(0, len(wave) - size + 1, step)]
    whole = np.concatenate(alone)
    whole = np.maximum(whole, whole.max() - 3 * np.log(10))
    for cuts in (np.sort(chance.integers(0, len(wave), 17)), range(1, 300), ()):
        np.testing.assert_allclose(bank.from_blocks(np.split(wave, cuts)), whole, atol=1e-4)
    assert bank.from_blocks([]).shape == (0, 23)


def test_a_long_recording_is_read_piece_by_piece(tmp_path):
    """Its features have 5 MB; whole, its samples, frames and spectra had 20 times as much."""
    path = str(tmp_path / "a.wav")
    soundfile.write(path, 0.1 * np.random.default_rng(0).standard_normal(150 * 8000), 8000)
    reader = SpeechReader(FilterBank(), upsample=True, max_seconds=300.0)
    first = reader.samples(path, 0, 16_000)
    np.testing.assert_array_equal(reader.samples(path, 5_000, 9_000), first[5_000:9_000])
    assert peak_megabytes(lambda: reader.features(path)) < 50


def test_a_filter_bank_that_cannot_be_is_an_error():
    with pytest.raises(ConfigError, match="expected frequencies between 0 and 4000 Hz"):
        FilterBank(rate=8000, highest=5000.0).check()


def test_features_of_digital_silence_are_cut_off():
    """Noise of which half is replaced by zeros: only what lies more than 40 decibels below the loudest changes."""
    samples = 0.1 * np.random.default_rng(1).normal(size=8000).astype(np.float32)
    samples[:4000] = 0
    bank = FilterBank(rate=8000, bins=23)
    plain, cut = bank(samples), bank._replace(dynamic_range=40.0)(samples)
    least = plain.max() - 4 * np.log(10)
    assert plain.min() < least
    np.testing.assert_allclose(cut, np.maximum(plain, least), rtol=1e-6)
    with pytest.raises(ConfigError, match="dynamic_range is 0"):
        bank._replace(dynamic_range=0.0).check()


def test_feature_files(tmp_path):
    numbers = np.random.default_rng(0).standard_normal((7, 13)).astype(np.float32)
    for order in "><":
        (tmp_path / "a.mfc").write_bytes(
            np.array([91], f"{order}i4").tobytes() + numbers.astype(f"{order}f4").tobytes()
        )
        assert np.array_equal(read_features(tmp_path / "a.mfc"), numbers)
    np.save(tmp_path / "a.npy", numbers.astype(np.float64))
    assert np.allclose(read_features(tmp_path / "a.npy"), numbers)
    for name, made in (("b.npy", numbers[0]), ("c.npy", numbers * np.nan), ("d.npy", numbers[:0]), ("e.npy", None)):
        np.save(tmp_path / name, np.array(["text"]) if made is None else made)
        with pytest.raises(AudioError):
            read_features(tmp_path / name)
    for made, expected in ((numbers[:, :0], r"shape \(7, 0\)"), (np.full((7, 13), 1e300), "not finite")):
        np.save(tmp_path / "e.npy", made)
        with pytest.raises(AudioError, match=expected):
            read_features(tmp_path / "e.npy")
    np.save(tmp_path / "f.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(AudioError):
        read_features(tmp_path / "f.npy")
    (tmp_path / "g.mfc").write_bytes(b"\x00\x00\x00\x05" + bytes(20))
    with pytest.raises(AudioError, match="13 numbers per frame"):
        read_features(tmp_path / "g.mfc")


def test_deltas_by_definition():
    features = np.random.default_rng(1).standard_normal((11, 3)).astype(np.float32)
    found = with_deltas(features, orders=2)

    def delta(x):
        at = lambda t: x[min(max(t, 0), len(x) - 1)]  # noqa: E731
        return np.array([sum(k * (at(t + k) - at(t - k)) for k in (1, 2)) / 10 for t in range(len(x))])

    assert np.allclose(found, np.concatenate([features, delta(features), delta(delta(features))], axis=1), atol=1e-6)


def test_normalization():
    chance = np.random.default_rng(2)
    many = [3 + 2 * chance.standard_normal((length, 5)).astype(np.float32) for length in (7, 11, 13)]
    one = normalized(many[0], "utterance")
    assert np.allclose(one.mean(axis=0), 0, atol=1e-5)
    assert np.allclose(one.std(axis=0), 1, atol=1e-4)
    statistics = Statistics.fit(many)
    joined = np.concatenate([normalized(one, "global", statistics) for one in many])
    assert np.allclose(joined.mean(axis=0), 0, atol=1e-5)
    assert np.allclose(joined.std(axis=0), 1, atol=1e-4)
    assert normalized(many[0], "none") is many[0]
    assert np.array_equal(normalized(np.ones((4, 2), np.float32), "utterance"), np.zeros((4, 2)))
    with pytest.raises(ConfigError, match="without statistics"):
        normalized(many[0], "global")


# ---- augmentation


def test_masks_are_stretches_inside_of_each_utterance():
    torch.manual_seed(5)
    features, lengths = torch.ones(31, 97, 23), torch.randint(11, 98, (31,))
    masking = audio_augment.Masking(feature_masks=1, feature_width=7, time_masks=1, time_width=13, time_share=0.3)
    found = audio_augment.spec_augment(features, lengths, masking)
    widths = set()
    for row, length in zip(found, lengths.tolist()):
        frames = (row.sum(dim=1) == 0).nonzero().squeeze(1).tolist()
        bins = (row.sum(dim=0) == 0).nonzero().squeeze(1).tolist()
        assert frames == list(range(min(frames, default=0), min(frames, default=0) + len(frames)))
        assert len(frames) <= min(13, 0.3 * length)
        assert max(frames, default=0) < length
        assert bins == list(range(min(bins, default=0), min(bins, default=0) + len(bins)))
        assert len(bins) <= 7
        assert int((row == 0).sum()) == len(frames) * 23 + len(bins) * 97 - len(frames) * len(bins)
        widths.add(len(bins))
    assert len(widths) >= 5
    torch.manual_seed(5)
    torch.randint(11, 98, (31,))
    assert torch.equal(audio_augment.spec_augment(features, lengths, masking), found)


def test_speed_changes_length_and_pitch():
    fast = audio_augment.at_speed(tone(8000, 1.1, 400.0), 1.1)
    assert len(fast) == 8000
    assert abs(np.argmax(np.abs(np.fft.rfft(fast))) - 440) <= 1
    frames = audio_augment.frames_at_speed(np.arange(90, dtype=np.float32)[:, None], 0.9)
    assert frames.shape == (100, 1)
    assert np.allclose(np.diff(frames[:, 0]), 89 / 99, atol=1e-4)


# ---- long recordings


@settings(max_examples=50)
@given(count=st.integers(1, 500), longest=st.floats(0.5, 20), seed=st.integers(0, 99))
def test_pieces_cover_all_and_are_short_enough(count, longest, seed):
    pieces = cut_at_silences(np.random.default_rng(seed).random(count), 0.1, longest)
    assert pieces[0][0] == 0
    assert pieces[-1][1] == count
    assert all(end == start for (_, end), (start, _) in pairwise(pieces))
    assert all(0 < end - start <= max(2, int(longest / 0.1)) for start, end in pieces)


@settings(max_examples=25)
@given(seed=st.integers(0, 999))
def test_every_cut_lies_in_a_pause_where_pauses_allow_it(seed):
    """Sentences of 2 to 7 s with pauses of 0.6 s between them, and shallow pauses inside of them."""
    chance = np.random.default_rng(seed)
    loudness, pauses = [], []
    for seconds in chance.uniform(2, 7, size=9):
        sentence = 5 + chance.random(int(100 * seconds))
        at = int(50 * seconds)
        sentence[at : at + 30] = 3.0
        pauses.append((sum(map(len, loudness)) + len(sentence), sum(map(len, loudness)) + len(sentence) + 60))
        loudness += [sentence, 0.1 * chance.random(60)]
    pieces = cut_at_silences(np.concatenate(loudness), 0.01, 8.0)
    for _, cut in pieces[:-1]:
        assert any(low <= cut < high for low, high in pauses), (cut, pauses)


# ---- manifests


def test_manifests_of_all_kinds(tmp_path):
    expected = [
        Utterance(str(tmp_path / "a.wav"), "yes no"),
        Utterance("morse:SOS", "SOS"),
        Utterance("/x/b.wav", "是"),
    ]
    (tmp_path / "m.jsonl").write_text(
        '{"audio": "a.wav", "text": "yes no"}\n{"audio": "morse:SOS", "text": "SOS"}\n'
        '{"audio": "/x/b.wav", "text": "是"}\n',
        encoding="utf-8",
    )
    assert read_manifest(tmp_path / "m.jsonl") == expected
    (tmp_path / "m.tsv").write_text("a.wav\tyes no\nmorse:SOS\tSOS\n/x/b.wav\t是\n", encoding="utf-8")
    assert read_manifest(tmp_path / "m.tsv") == expected
    (tmp_path / "o.tsv").write_text("morse:SOS\tSOS\n", encoding="utf-8")
    assert read_manifest(tmp_path / "o.tsv") == expected[1:2]
    (tmp_path / "n.tsv").write_text("said\tfile\nyes no\ta.wav\n", encoding="utf-8")
    assert read_manifest(tmp_path / "n.tsv", ("file", "said")) == expected[:1]
    folder = tmp_path / "kaldi"
    folder.mkdir()
    (folder / "wav.scp").write_text("u1 a.wav\nu2 /x/b.wav\n", encoding="utf-8")
    (folder / "text").write_text("u2 是\nu1 yes no\n", encoding="utf-8")
    assert read_manifest(folder) == [expected[2], Utterance(str(folder / "a.wav"), "yes no")]
    (folder / "wav.scp").write_text("u1\ta b.wav\n", encoding="utf-8")
    (folder / "text").write_text("u1\tyes  no\n", encoding="utf-8")
    assert read_manifest(folder) == [Utterance(str(folder / "a b.wav"), "yes  no")]


HEARD = "client_id\tpath\tsentence_id\tsentence\tup_votes\nx\tc.mp3\t7\tyes, no\t2\ny\td.mp3\t8\t是\t2\n"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("validated.tsv", HEARD),
        ("a.csv", 'audio,text\nc.mp3,"yes, no"\nd.mp3,是\n'),
        ("b.csv", 'c.mp3,"yes, no"\nd.mp3,是\n'),
        ("c.csv", "file;sentence\nc.mp3;yes, no\nd.mp3;是\n"),
        ("nemo.json", '{"audio_filepath": "c.mp3", "text": "yes, no"}\n{"audio_filepath": "d.mp3", "text": "是"}\n'),
    ],
)
def test_manifests_as_others_write_them(name, content, tmp_path):
    """A first line with names of columns is no recording; Common Voice has its recordings in a folder of their own."""
    (tmp_path / "clips").mkdir()
    (tmp_path / "clips" / "d.mp3").touch()
    (tmp_path / name).write_text(content, encoding="utf-8")
    found = read_manifest(tmp_path / name)
    assert found == [
        Utterance(str(tmp_path / "c.mp3"), "yes, no"),
        Utterance(str(tmp_path / "clips" / "d.mp3"), "是"),
    ]


def test_mistakes_in_manifests_name_file_and_line(tmp_path):
    folder = tmp_path / "kaldi"
    folder.mkdir()
    with pytest.raises(DataError, match="has no wav.scp"):
        read_manifest(folder)
    (folder / "wav.scp").write_text("u1 sox a.wav -t wav - |\n", encoding="utf-8")
    (folder / "text").write_text("u1 yes\nu2 no\nu3\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"wav.scp, line 1: 'u1' is made by a command.*\n.*4 faults"):
        read_manifest(folder)
    (folder / "wav.scp").write_text("u1 a.wav\n", encoding="utf-8")
    with pytest.raises(DataError, match="text, line 2: the utterance 'u2' is not in wav.scp"):
        read_manifest(folder)
    (folder / "wav.scp").write_text("u1 a.wav\n\nu1 b.wav\n", encoding="utf-8")
    (folder / "text").write_text("u1 yes\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"wav.scp, line 2: the line is empty.*\n.*1 × repeated id"):
        read_manifest(folder)
    (folder / "segments").write_text("", encoding="utf-8")
    with pytest.raises(DataError, match="segments of longer recordings"):
        read_manifest(folder)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.tsv", "a.wav\tyes\nb.wav\t \n", r"line 2: column 1 \(from 0\) is empty\."),
        ("a.jsonl", '{"audio": "a.wav", "text": ""}\n', "line 1: field 'text' is empty"),
        ("a.jsonl", '{"audio": "a.wav", "text": "a"}\n\n', "line 2: the line is empty, expected a JSON object"),
        ("a.jsonl", '{"audio": "a.wav", "txt": "a"}\n', "line 1: no field 'text'. Did you mean 'txt'"),
        ("a.csv", "clip,said\na.wav,yes\n", r"line 1: 'clip' is no recording.*\(--columns\) to .* such as clip,said"),
        ("a.xml", "a.wav,yes\n", r"a.xml: ends in .xml, expected a manifest, .jsonl, .tsv or .csv"),
    ],
)
def test_mistakes_in_tables_are_named_in_words_of_the_manifest(tmp_path, name, content, expected):
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises((DataError, ConfigError), match=expected):
        read_manifest(tmp_path / name)


# ---- utterances


@pytest.mark.parametrize("ending", ["wav", "aiff"])
def test_a_file_that_was_cut_off_is_left_out_and_one_of_unknown_length_is_not(tmp_path, ending):
    whole, half = tmp_path / f"whole.{ending}", tmp_path / f"half.{ending}"
    soundfile.write(whole, tone(16000), 16000)
    half.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    reader = SpeechReader(FilterBank())
    reader.check(str(whole))
    with pytest.raises(AudioError, match="is cut off: has 50% of the samples that its header claims") as caught:
        reader.check(str(half))
    assert caught.value.kind == "cut-off file"
    assert len(read_sound(half).samples) < 0.51 * len(read_sound(whole).samples)
    if ending == "wav":
        streamed = bytearray(whole.read_bytes())
        streamed[4:8] = streamed[40:44] = b"\xff" * 4
        (tmp_path / "streamed.wav").write_bytes(streamed)
        reader.check(str(tmp_path / "streamed.wav"))
        assert len(read_sound(tmp_path / "streamed.wav").samples) == len(read_sound(whole).samples)


@pytest.mark.parametrize("ending", ["wav", "npy", "mfc"])
def test_names_that_cannot_be_opened_are_left_out_like_other_recordings(tmp_path, ending):
    (tmp_path / f"folder.{ending}").mkdir()
    os.mkfifo(tmp_path / f"pipe.{ending}")
    names = [tmp_path / f"{name}.{ending}" for name in ("folder", "pipe", "zero\0", "long" * 99)]
    reader = SpeechReader(FilterBank())
    said = []
    with pytest.raises(DataError, match="none of 4 recordings can be used"):
        usable_utterances([Utterance(str(name), "x") for name in names], reader, said.append, "m.jsonl")
    assert said[0] == "4 of 4 recordings are left out: 3 × unreadable file, 1 × missing file"
    assert "Is a directory" in said[1]
    assert "a pipe" in said[2]
    assert "name too long" in said[4]
    for name in names:
        with pytest.raises(AudioError):
            reader.features(str(name))


def test_unusable_recordings_are_named_skipped_and_counted(tmp_path):
    soundfile.write(tmp_path / "good.wav", tone(16000), 16000)
    soundfile.write(tmp_path / "silent.wav", np.zeros(16000), 16000)
    soundfile.write(tmp_path / "low.wav", tone(8000), 8000)
    soundfile.write(tmp_path / "long.wav", tone(16000, 3.1), 16000)
    soundfile.write(tmp_path / "short.wav", tone(16000, 0.01), 16000)
    (tmp_path / "broken.wav").write_text("no sound")
    names = ["good", "silent", "low", "long", "short", "broken", "none"]
    utterances = [Utterance(str(tmp_path / f"{name}.wav"), "x") for name in names]
    reader = SpeechReader(FilterBank(), max_seconds=3.0)
    said = []
    kept = usable_utterances(utterances, reader, said.append, "m.jsonl")
    assert [one.audio.rsplit("/")[-1] for one in kept] == ["good.wav", "silent.wav", "short.wav"]
    assert said[0].startswith("4 of 7 recordings are left out: 1 × low rate, 1 × over-long file")
    heard = compute_features(kept, reader, said.append, "m.jsonl", speeds=(1.0, 0.9))
    assert [one.audio.rsplit("/")[-1] for one in heard.utterances] == ["good.wav", "good.wav"]
    assert [len(one) for one in heard.features] == [68, 76]
    text = "\n".join(said)
    assert all(f"{name}.wav" in text for name in names[1:])
    with pytest.raises(DataError, match=r"m.jsonl, line 1: none of 1 recordings can be used; .*silent"):
        compute_features(utterances[1:2], reader, said.append, "m.jsonl")
    with pytest.raises(DataError, match=r"line 1: none of 1 .*Set features.sample_rate=8000"):
        usable_utterances(utterances[2:3], reader, said.append, "m.jsonl")
    raised = SpeechReader(FilterBank(), upsample=True).features(utterances[2].audio)
    assert raised.shape == (68, 80)


def test_batches_are_padded():
    features = [np.full((length, 3), length, np.float32) for length in (5, 2)]
    examples = SpeechExamples(features, [[7, 8], [9]], 11)
    assert examples.lengths.tolist() == [[5, 4], [2, 3]]
    batch = examples.batch(np.array([1, 0]), [5, 4])
    assert batch.features.shape == (2, 5, 3)
    assert batch.features[0, :, 0].tolist() == [2, 2, 0, 0, 0]
    assert batch.lengths.tolist() == [2, 5]
    assert batch.target.tolist() == [[1, 9, 2, 0], [1, 7, 8, 2]]


def test_short_utterances_come_first():
    examples = SpeechExamples([np.zeros((1 + n % 17, 2), np.float32) for n in range(60)], [[5]] * 60, 11)

    def made():
        return ShortFirstBatches(examples, short_first=2, max_tokens=40, seed=3)

    batches = made()
    for epoch in range(3):
        widths = [batch.features.shape[1] for batch in batches.epoch(epoch)]
        assert (widths == sorted(widths)) == (epoch < 2)
        assert sum(len(batch.lengths) for batch in batches.epoch(epoch)) == 60
    whole = [batch.lengths.tolist() for batch, _ in zip(made(), range(70))]
    part = made()
    for _ in zip(range(7), part):  # in this order: zip takes one more of its first argument
        pass
    rest = made()
    rest.load_state_dict(part.state_dict())
    assert [batch.lengths.tolist() for batch, _ in zip(rest, range(30))] == whole[7:37]
    with pytest.raises(ConfigError, match="another stream"):
        ShortFirstBatches(examples, short_first=1, max_tokens=40, seed=3).load_state_dict(part.state_dict())


def test_features_of_different_sizes_are_an_error(tmp_path):
    for name, size in (("a.npy", 3), ("b.npy", 5)):
        np.save(tmp_path / name, np.ones((7, size)))
    utterances = [Utterance(str(tmp_path / name), "x") for name in ("a.npy", "b.npy")]
    with pytest.raises(DataError, match=r"b.npy: has 5 features per frame, expected 3"):
        compute_features(utterances, SpeechReader(FilterBank()), print, "m")
    assert audio_features.FEATURE_ENDINGS == (".npy", ".mfc")
