"""What is special about transcripts: times, forms, long recordings, unusable ones, the schedule of CTC."""

import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

import foci
import foci_cli
from foci.data.audio.files import Sound, write_sound
from foci.data.audio.speech_detector import SpeechDetector
from foci.data.builtin.morse import sound_of
from foci.data.tokenizer import Tokenizer
from foci.decoding import Hypothesis
from foci.errors import ConfigError, DataError
from foci.metrics.calibration import Odds
from foci.tasks.frame import config as configs
from foci.tasks.transcribe import search as transcribe_search
from foci.tasks.transcribe import task as transcribe_task
from foci.tasks.transcribe.config import TranscribeConfig
from foci.tasks.transcribe.data import SpeechReader, filter_bank
from foci.tasks.transcribe.task import Transcribe
from foci.tasks.transcribe.words import (
    Aligned,
    SpokenWord,
    WordOutcomes,
    doubtful_times,
    medians,
    spoken_words,
    to_ctm,
    to_srt,
    word_tokens,
)

pytest.importorskip("soundfile")
pytest.importorskip("jiwer")


def trained(folder, log=lambda text: None, **changes):
    tables = configs.put(
        Transcribe.Config.smallest, {path.replace("__", "."): value for path, value in changes.items()}
    )
    foci.train("transcribe", tables, out=folder, log=log)
    return foci.load(folder)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run that has learned next to nothing, with both decoder and CTC."""
    return trained(tmp_path_factory.mktemp("transcribe") / "run")


def wav(path, *messages, gap=0.6):
    """A file with messages in Morse code, one after the other."""
    segments = []
    for message in messages:
        segments += [sound_of(f"morse:{message}").samples, np.zeros(int(gap * 8000), np.float32)]
    return str(write_sound(path, Sound(np.concatenate(segments), 8000)))


# ---- words


def test_probabilities_of_words_are_calibrated_on_the_validation_data(tmp_path, monkeypatch):
    """Half of the words are right, which the model thinks very improbable."""
    searched = iter(range(10**6))

    def half_right(model, encoded, options):
        tokens = [[ids["a"], ids[" "], ids["bx"[next(searched) % 2]]] for _ in encoded.values]
        return [[Hypothesis(one, -1.0, -1.0, finished=True)] for one in tokens]

    morse_file = tmp_path / "m.jsonl"
    names = [
        f"morse:{word}" for word in ("a b", "b a", "ab", "ba", "b b", "a a", "aab", "abb", "x b", "bx", "b x", "xa")
    ]
    morse_file.write_text("".join(json.dumps({"audio": name, "text": "a b"}) + "\n" for name in names))
    ids = {}
    learned = Tokenizer.train
    monkeypatch.setattr(Tokenizer, "train", lambda *given: ids.update(numbered(made := learned(*given))) or made)
    for module in (transcribe_task, transcribe_search):
        monkeypatch.setattr(module, "search", half_right)
    predictor = trained(
        tmp_path / "run", data__builtin=None, data__path=str(morse_file), data__valid=str(morse_file),
        data__test=str(morse_file), data__morse_words=2, training__max_steps=2,
    )  # fmt: skip
    odds = predictor.task.odds
    assert odds != Odds()
    records = predictor.held_out()
    evaluation = predictor.evaluate(records)
    assert evaluation.metrics["ece"] < 0.1 < evaluation.metrics["ece_uncalibrated"]
    assert sum(row[1] for row in evaluation.tables["calibration"].rows) == 2 * len(names)
    said = [word["confidence"] for one in predictor.predict(records) for word in one.details["words"]]
    predictor.task.calibration = {}
    raw = [word["confidence"] for one in predictor.predict(records) for word in one.details["words"]]
    assert said == pytest.approx(odds(raw))


def test_no_words_have_no_calibration_error():
    errors, bins = WordOutcomes().measure(Odds())
    assert (errors, sum(one.size for one in bins)) == ({}, 0)


def numbered(tokenizer):
    return {letter: tokenizer.encode(letter).ids[0] for letter in "abx "}


def test_words_have_the_times_and_probabilities_of_their_tokens():
    tokenizer = Tokenizer.train(["ab c"], "characters", 10)
    tokens = tokenizer.encode("ab c").ids
    weights = np.zeros((4, 10), np.float32)
    for row, cells in enumerate([[1], [2, 3, 4], [5], [7, 8]]):
        weights[row, cells] = 1 / len(cells)
    aligned = Aligned([(1, 1), (3, 4), (6, 6), (8, 9)], [0.9, 0.7, 1.0, 0.3])
    found = spoken_words(tokenizer, tokens, np.log([0.5, 0.5, 0.9, 0.8]).tolist(), weights, aligned, 10, 0.1)
    assert [word.text for word in found] == ["ab", "c"]
    # The medians are the cells 1, 3, 5 and 7: half a letter is one cell.
    assert found[0].attention == pytest.approx((0.05, 0.45))
    # The middles are 1.5, 4, 6.5 and 9 cells; the recording ends after ten.
    assert found[0].ctc == pytest.approx((0.025, 0.525))
    assert found[0].confidence == pytest.approx(0.25)
    assert found[1].attention == pytest.approx((0.65, 0.85))
    assert found[1].ctc == pytest.approx((0.775, 1.0))
    assert found[1].moved(2.0).span == pytest.approx((2.775, 3.0))
    assert [word.time_confidence for word in found] == pytest.approx([0.8, 0.3])
    assert doubtful_times(found, 0.3) is None
    assert "the times of 1 of 2 words are doubtful" in doubtful_times(found, 0.5)
    assert medians(np.array([[0.2, 0.2, 0.6], [0.6, 0.2, 0.2]])).tolist() == [2, 0]


def test_words_of_subwords_bytes_and_scripts_without_spaces():
    tokenizer = Tokenizer.train(["low lower lowest newest"] * 3, "bpe", 290)
    text = "lower 是 newest"
    tokens = tokenizer.encode(text).ids
    words = word_tokens(tokenizer, tokens)
    assert [word for word, _ in words] == ["lower", "是", "newest"]
    assert sorted(number for _, numbers in words for number in numbers) == sorted(
        {number for _, numbers in words for number in numbers}
    )
    characters = Tokenizer.train(["明天 ok"], "characters", 20)
    assert [word for word, _ in word_tokens(characters, characters.encode("明天ok").ids)] == ["明", "天", "ok"]


def test_a_word_does_not_reach_into_a_long_pause_nor_into_its_neighbor():
    tokenizer = Tokenizer.train(["ab c"], "characters", 10)
    tokens = tokenizer.encode("ab c").ids
    found = spoken_words(
        tokenizer, tokens, [0.0] * 4, None, Aligned([(4, 4), (8, 8), (38, 38), (60, 60)], [1.0] * 4), 100, 0.1
    )
    assert found[0].ctc == pytest.approx((0.25, 1.05))
    assert found[1].ctc == pytest.approx((5.85, 6.25))
    close = spoken_words(
        tokenizer, tokens, [0.0] * 4, None, Aligned([(4, 4), (8, 8), (9, 9), (10, 10)], [1.0] * 4), 100, 0.1
    )
    assert close[0].ctc == pytest.approx((0.25, 0.9))
    assert close[1].ctc == pytest.approx((1.0, 1.25))
    alone = spoken_words(tokenizer, tokens[:1], [0.0], None, Aligned([(4, 5)], [1.0]), 100, 0.1)
    assert alone[0].ctc == pytest.approx((0.4, 0.6))
    assert spoken_words(tokenizer, [], [], None, Aligned([], []), 100, 0.1) == []


def test_times_of_an_attention_that_strays_are_doubtful_but_not_those_of_ctc_beside_it():
    tokenizer = Tokenizer.train(["ab c d"], "characters", 10)
    tokens = tokenizer.encode("ab c d").ids  # three words, five tokens with the blanks
    sharp = np.zeros((6, 60), np.float32)
    sharp[range(6), [3, 8, 12, 20, 25, 40]] = 1.0
    assert doubtful_times(spoken_words(tokenizer, tokens, [0.0] * 6, sharp, None, 60, 0.1), 0.5) is None
    strayed = sharp.copy()
    strayed[5] = np.eye(60)[2]  # back to the beginning
    words = spoken_words(tokenizer, tokens, [0.0] * 6, strayed, None, 60, 0.1)
    assert [word.time_confidence for word in words] == pytest.approx([1.0, 1.0, 0.0])
    assert "those of 'd' (0.00): the attention" in doubtful_times(words, 0.5)
    diffuse = np.full((6, 60), 1 / 60, np.float32)
    assert all(
        word.time_confidence < 0.5 for word in spoken_words(tokenizer, tokens, [0.0] * 6, diffuse, None, 60, 0.1)
    )
    surely = Aligned([(n, n) for n in (3, 8, 12, 20, 25, 40)], [0.9] * 6)
    for weights in (strayed, diffuse):
        assert doubtful_times(spoken_words(tokenizer, tokens, [0.0] * 6, weights, surely, 60, 0.1), 0.5) is None
    hardly = Aligned(surely.spans, [0.9, 0.9, 0.9, 0.9, 0.9, 0.01])
    assert "those of 'd' (0.01): CTC" in doubtful_times(
        spoken_words(tokenizer, tokens, [0.0] * 6, sharp, hardly, 60, 0.1), 0.5
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("你好，世界。ok.", ["你", "好，", "世", "界。", "ok."]),
        ("（你）𠀀", ["（", "你）", "𠀀"]),
        ("ที่นี่", ["ที่", "นี่"]),
        ("مَرحبا بالعالم", ["مَرحبا", "بالعالم"]),
        ("don't «stop» -", ["don't", "«stop»", "-"]),
    ],
)
def test_marks_and_punctuation_belong_to_the_word_before_them(text, expected):
    tokenizer = Tokenizer.train([text], "characters", 50)
    assert [word for word, _ in word_tokens(tokenizer, tokenizer.encode(text).ids)] == expected


def test_forms():
    words = [SpokenWord(str(n), 0.5, (n * 0.5, n * 0.5 + 0.25), None) for n in range(12)]
    lines = to_ctm("/a/my file.wav", words).splitlines()
    assert lines[3] == "my_file 1 1.50 0.25 3 0.50"
    blocks = to_srt(words).split("\n\n")
    assert blocks[0] == "1\n00:00:00,000 --> 00:00:04,750\n0 1 2 3 4 5 6 7 8 9"
    assert blocks[1] == "2\n00:00:05,000 --> 00:00:06,000\n10 11\n"
    assert to_ctm("x", []) == ";; x: no words"
    assert to_srt([]) == ""


def test_captions_are_lines_that_can_be_read():
    spoken = [SpokenWord("extraordinary", 1.0, None, (n * 0.3, n * 0.3 + 0.2)) for n in range(2000)]
    captions = to_srt(spoken).rstrip().split("\n\n")
    assert all(block.split("\n")[2] == " ".join(["extraordinary"] * 3) for block in captions[:-1])
    chinese = [SpokenWord(letter, 1.0, None, (n * 0.2, n * 0.2 + 0.1)) for n, letter in enumerate("你好，世界" * 9)]
    assert to_srt(chinese).split("\n")[2] == ("你好，世界" * 9)[:21]
    flash = [SpokenWord("a", 1.0, None, (0.0, 0.04)), SpokenWord("b", 1.0, None, (1.0, 1.04))]
    assert "00:00:00,000 --> 00:00:01,000" in to_srt(flash)
    assert "00:00:01,000 --> 00:00:02,000" in to_srt(flash)


def test_times_never_go_back_in_ctm_and_captions():
    words = [SpokenWord(str(n), 1.0, (at, at + 0.1), None) for n, at in enumerate((2.0, 0.5, 9.0, 4.0))]
    starts = [float(line.split()[2]) for line in to_ctm("a", words).splitlines()]
    assert starts == [2.0, 2.0, 9.0, 9.0]
    assert all(float(line.split()[3]) >= 0 for line in to_ctm("a", words).splitlines())
    assert re.findall(r"(\S+) --> (\S+)", to_srt(words)) == [
        ("00:00:02,000", "00:00:03,000"),
        ("00:00:09,000", "00:00:10,000"),
    ]


# ---- predictions


def test_a_file_equals_its_message(run, tmp_path):
    path = wav(tmp_path / "a.wav", "SOS DE K", gap=0.001)
    (found,) = run.predict([path])
    assert found.details["seconds"] > 1
    for word in found.details["words"]:
        assert 0 <= word["start"] <= word["end"] <= found.details["seconds"] + 0.1
        assert 0 <= word["confidence"] <= 1
        assert {"attention", "ctc"} <= {*word}
    (ctm,) = run.predict([path], options={"output_format": "ctm"})
    assert len(ctm.output.splitlines()) == len(found.details["words"])
    assert ctm.details["text"] == found.output


def test_long_recordings_are_cut_at_silences_with_their_offsets_kept(run, tmp_path):
    path = wav(tmp_path / "long.wav", "EE", "TT", "MM", "II", gap=1.0)
    (found,) = run.predict([path], options={"max_segment_seconds": 3.0})
    segments = found.details["segments"]
    assert len(segments) >= 2
    assert "was cut at silences" in found.details["notes"][0]
    samples = SpeechReader(filter_bank(run.config.features)).sound(path).samples
    for segment in segments[1:]:
        around = samples[int((segment["start"] - 0.1) * 8000) : int((segment["start"] + 0.1) * 8000)]
        assert np.abs(around).max() < 0.6 * np.abs(samples).max()
    starts = [word["start"] for word in found.details["words"]]
    assert starts == sorted(starts)
    moments = [*starts, *(segment["start"] for segment in segments), found.details["seconds"]]
    assert moments == [round(moment, 3) for moment in moments]
    assert found.trace is None


def test_any_segment_of_a_long_recording_is_shown(run, tmp_path):
    path = wav(tmp_path / "long.wav", "EE", "TT", "MM", "II", gap=1.0)
    whole = SpeechReader(filter_bank(run.config.features)).sound(path).samples
    options = {"max_segment_seconds": 3.0, "beam_size": 1}
    (plain,) = run.predict([path], options=options)
    segments = plain.details["segments"]
    ends = [*(segment["start"] for segment in segments[1:]), plain.details["seconds"]]
    for number, (segment, end) in enumerate(zip(segments, ends), start=1):
        (found,) = run.predict([path], options={**options, "segment": number}, trace=True)
        assert found.output == plain.output
        assert found.trace.text == segment["text"]
        source = found.trace.axes["source"]
        first, last = round(segment["start"] * 8000), round(end * 8000)
        assert source.start == pytest.approx(segment["start"])
        assert np.array_equal(source.sound, np.rint(whole[first:last] * 32767).astype(np.int16))
        assert len(source.spectrogram) == pytest.approx((last - first) / 160, abs=1)
        assert f"segment {number} of {len(segments)} is shown, {segment['start']:.1f} to {end:.1f} s" in str(
            found.details["notes"]
        )
    (none,) = run.predict([path], options={**options, "segment": 99}, trace=True)
    assert none.trace is None
    assert none.output == plain.output
    assert f"segment 99 is not shown, expected 1 to {len(segments)} (choose with --segment)" in none.details["notes"]


def test_many_recordings_are_not_held_in_memory_at_once(run, monkeypatch):
    events = []
    read = transcribe_search.read_segments
    monkeypatch.setattr(
        transcribe_search, "read_segments", lambda *given, **more: events.append("read") or read(*given, **more)
    )
    addresses = [f"morse:{message}" for message in ("SOS", "E", "CQ DE", "73", "T")]
    together = run.predict(addresses)
    assert events == ["read"] * 5
    events.clear()
    few = run.predict(addresses, options={"batch_frames": 1}, progress=lambda count: events.append("done"))
    assert events[:4] == ["read", "done", "read", "done"]
    assert [one.output for one in few] == [one.output for one in together]


def test_recordings_are_cut_where_they_are_longer_than_any_in_training(run):
    frames = [len(run.task.reader.features(one.audio)) for one in run.task.read(lambda text: None).train]
    assert run.assets.longest == max(frames)
    assert 0.85 < np.mean([length <= run.assets.usual for length in frames]) < 0.95
    letters = "EE" * 20
    whole, cut = (run.predict([f"morse:{letters[:length]}"])[0].details for length in (2, 40))
    assert "segments" not in whole
    assert cut["seconds"] > run.assets.longest * 0.02
    starts = [segment["start"] for segment in cut["segments"]]
    assert max(np.diff([*starts, cut["seconds"]])) <= run.assets.usual * 0.02 + 1e-6


def test_a_word_is_the_same_token_at_the_beginning_as_after_others(tmp_path):
    rows = [{"audio": f"morse/{n}:EE", "text": "EE EE" if n % 2 else "EE"} for n in range(20)]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    tables = configs.put(Transcribe.Config.smallest, {"tokenizer.kind": "words", "training.max_steps": 1})
    foci.train("transcribe", {**tables, "data": {"path": str(path)}}, out=tmp_path / "run", log=lambda text: None)
    run = foci.load(tmp_path / "run")
    assert run.assets.tokenizer.pieces == [" EE"]
    (found,) = run.predict(["morse:EE"], options={"max_length": 2})
    assert found.output == found.output.strip()


def test_unusable_recordings_have_a_note_and_stop_nothing(run, tmp_path):
    (tmp_path / "broken.wav").write_text("no sound")
    good = wav(tmp_path / "good.wav", "E")
    done = []
    found = run.predict([str(tmp_path / "none.wav"), good, str(tmp_path / "broken.wav")], progress=done.append)
    assert sum(done) == 3
    assert [one.score is None for one in found] == [True, False, True]
    assert "there is no such file" in found[0].details["notes"][0]
    with pytest.raises(DataError, match="none of 1 recordings can be used"):
        run.evaluate([{"audio": str(tmp_path / "none.wav"), "text": "E"}])


def test_every_recording_to_evaluate_counts(tmp_path):
    lines = [{"audio": wav(tmp_path / f"{n}.wav", "SOS"), "text": "SOS"} for n in range(5)]
    lines.append({"audio": wav(tmp_path / "long.wav", *["SOS"] * 9), "text": " ".join(["SOS"] * 9)})
    (tmp_path / "broken.wav").write_text("no sound")
    lines.append({"audio": "broken.wav", "text": "two words"})
    manifest = tmp_path / "a.jsonl"
    manifest.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    run = trained(
        tmp_path / "run",
        data={"path": str(manifest), "valid": str(manifest), "test": str(manifest), "max_seconds": 10.0},
        training__max_steps=1,
    )
    found = run.evaluate()
    assert found.metrics["utterances"] == 7
    assert found.metrics["words"] == 5 + 9 + 2
    assert found.metrics["unreadable"] == 1
    assert "1 of 7 recordings cannot be used, and all their words count as deleted" in found.notes["unreadable"]
    assert "broken.wav" in found.notes["unreadable"]
    assert found.notes["cut"].startswith("1 of 7")
    assert found.metrics["deletions"] >= 2


def test_noise_tones_and_silence_have_no_transcript(run, tmp_path, capsys):
    chance = np.random.default_rng(0)
    times = np.arange(16_000) / 8000
    sounds = {
        "noise": 0.2 * chance.standard_normal(16_000),
        "tone": 0.5 * np.sin(2 * np.pi * 600 * times),
        "hiss": 0.001 * chance.standard_normal(16_000),
    }
    paths = [str(write_sound(tmp_path / f"{k}.wav", Sound(v.astype(np.float32), 8000))) for k, v in sounds.items()]
    messages = [wav(tmp_path / f"m{n}.wav", text) for n, text in enumerate(["SOS", "E", "CQ DE FOCI"])]
    found = run.predict([*paths, *messages], trace=True)
    for one in found[:3]:
        assert (one.output, one.details["words"]) == ("", [])
        assert one.details["no_speech"] > 0.75
        assert "no speech was found" in one.details["notes"][0]
    for one in found[3:]:
        assert one.details["no_speech"] < 0.5
        assert not any("no speech" in note for note in one.details.get("notes", []))
    # With the threshold 1 everything is transcribed as it was before.
    everything = run.predict([*paths, *messages], options={"no_speech_threshold": 1.0})
    assert not any("no speech" in note for one in everything for note in one.details.get("notes", []))
    assert [one.output for one in everything[3:]] == [one.output for one in found[3:]]
    # A long recording of which a part is noise is transcribed around it.
    noise = np.concatenate([sound_of("morse:SOS SOS").samples, *[sounds["noise"]] * 2]).astype(np.float32)
    long = str(write_sound(tmp_path / "long.wav", Sound(noise, 8000)))
    (mixed,) = run.predict([long], options={"max_segment_seconds": 2.0})
    scores = [segment["no_speech"] for segment in mixed.details["segments"]]
    assert min(scores) == mixed.details["no_speech"] < 0.5
    assert max(scores) > 0.75
    records = [{"audio": path, "text": "E"} for path in (*paths, *messages)]
    evaluation = run.evaluate(records)
    assert evaluation.metrics["no_speech"] == 3
    assert foci_cli.main(["predict", str(run.path), paths[0]]) == 0
    shown = capsys.readouterr()
    assert shown.out.strip() in ("", f"{paths[0]}\t")
    assert "no speech was found" in shown.err


def test_other_sounds_than_those_of_training_have_no_transcript(run, tmp_path):
    """The detector of the run is asked; what it was fitted to is tested in tests/data/audio/test_speech_detector.py."""
    assert run.assets.detector.bins == run.config.features.bins
    assert len(run.assets.detector.weights) == 12
    detector = run.assets.detector._replace(weights=(0.0,) * 12, bias=2.0)
    sure = foci.load(run.path)
    sure.assets = replace(run.assets, detector=detector)
    (message,) = run.predict(["morse:SOS"])
    (found,) = sure.predict(["morse:SOS"])
    assert message.details["no_speech"] < 0.5
    assert (found.output, found.details["no_speech"]) == ("", pytest.approx(1 / (1 + np.exp(-2)), abs=1e-3))
    assert "no speech was found: the sound does not change as speech in training does" in found.details["notes"][0]
    with pytest.raises(ValueError, match="not complete"):
        replace(run.assets, detector=detector._replace(mean=())).check()


def test_runs_of_before_and_of_feature_files_have_no_detector(run, tmp_path):
    older = tmp_path / "older"
    shutil.copytree(run.path, older)
    (older / "detector.json").unlink()
    assert foci.load(older).assets.detector == SpeechDetector.empty()
    lines = []
    for number in range(6):
        np.save(tmp_path / f"{number}.npy", np.random.default_rng(number).normal(size=(40, 3)).astype(np.float32))
        lines.append(json.dumps({"audio": f"{number}.npy", "text": "E"}) + "\n")
    manifest = tmp_path / "a.jsonl"
    manifest.write_text("".join(lines), encoding="utf-8")
    data = {"path": str(manifest), "valid": str(manifest), "test": str(manifest)}
    assert trained(tmp_path / "run", data=data, training__max_steps=1).assets.detector == SpeechDetector.empty()


def test_a_higher_rate_and_n_best(run, tmp_path):
    path = str(write_sound(tmp_path / "a.flac", Sound(np.repeat(sound_of("morse:SOS").samples, 2), 16000)))
    (found,) = run.predict([path], options={"beam_size": 3, "n_best": 3})
    assert len(found.alternatives) == 2
    scores = [found.score, *(one.score for one in found.alternatives)]
    assert scores == sorted(scores, reverse=True)
    low = str(write_sound(tmp_path / "low.wav", Sound(sound_of("morse:SOS").samples[::2], 4000)))
    assert "4,000 samples per second" in run.predict([low])[0].details["notes"][0]
    with pytest.raises(ConfigError, match="n_best is 9, expected at most beam_size = 4"):
        run.predict([path], options={"n_best": 9})
    with pytest.raises(
        ConfigError, match="n_best is 2 with output_format = 'ctm', which has one transcript per recording"
    ):
        run.predict([path], options={"n_best": 2, "output_format": "ctm"})


def test_the_trace_has_attention_ctc_and_the_spectrogram(run):
    (found,) = run.predict(["morse:SOS"], trace=True)
    trace = found.trace
    assert [*trace.attentions] == ["decoder.cross", "ctc"]  # the first is what a page opens with
    source = trace.axes["source"]
    assert source.rate == 8000
    assert abs(len(source.sound) / 8000 - found.details["seconds"]) < 0.1
    assert "".join(mark.label for mark in source.marks) == found.output.replace(" ", "")
    assert source.seconds == pytest.approx(0.04)
    assert source.spectrogram.shape[1] == 40  # drawn, where the model hears one band
    assert trace.cross_attentions()[0].name == "decoder.cross"


def test_built_in_examples_become_files(run, tmp_path):
    given = [{"audio": "morse:SOS"}, {"audio": "a.wav"}]
    first, second = run.task.to_files(given, tmp_path)
    assert first["audio"].endswith("morse-1.wav")
    assert second["audio"] == "a.wav"
    one, other = run.predict([first["audio"], "morse:SOS"])
    assert one.output == other.output


# ---- training


def test_the_weight_of_ctc_follows_its_schedule():
    config = configs.configure(TranscribeConfig, {"ctc": {"weight": 0.8, "final_weight": 0.2, "steps": 10}}, "test")
    task = Transcribe(config)
    assert [task.ctc_weight(step) for step in (0, 5, 10, 99)] == pytest.approx([0.8, 0.5, 0.2, 0.2])


def test_the_schedule_of_ctc_counts_steps_not_batches(tmp_path, monkeypatch):
    asked = []
    weight = Transcribe.ctc_weight
    monkeypatch.setattr(Transcribe, "ctc_weight", lambda self, step: asked.append(step) or weight(self, step))
    options = {"training__gradient_accumulation_steps": 4, "training__eval_every": None}
    trained(tmp_path / "run", training__max_steps=2, **options)
    assert asked[-8:] == [0, 0, 0, 0, 1, 1, 1, 1]
    tables = configs.put(
        Transcribe.Config.smallest, {"training.gradient_accumulation_steps": 4, "training.eval_every": None}
    )
    asked.clear()
    foci.train("transcribe", configs.put(tables, {"training.max_steps": 3}), out=tmp_path / "run", resume=True)
    assert asked[-4:] == [2, 2, 2, 2]
    assert int(foci.load(tmp_path / "run", checkpoint="last").model.steps) == 3


def test_the_loss_of_a_validation_does_not_move_with_the_schedule_of_ctc(run):
    """Weights that stand still have one loss, whatever step they are of: that of the mixture at the end."""
    held_out = run.task.held_out(run.task.read(lambda text: None), run.assets, lambda text: None)
    before, found = int(run.model.steps), []
    with torch.no_grad():
        for step in (0, 10**6):
            run.model.steps.fill_(step)
            found.append(run.task.validate(run.model, held_out)["loss"])
    run.model.steps.fill_(before)
    assert run.config.ctc.weight != run.config.ctc.final_weight
    assert found[0] == found[1]


def test_a_notice_where_the_attention_is_not_diagonal(tmp_path):
    said = []
    trained(
        tmp_path / "run",
        said.append,
        diagonal_after=3,
        model__attention__score="additive",
        model__ctc=False,
        training__max_steps=4,
        training__learning_rate=1e-6,
        training__warmup=0,
    )
    (notice,) = [text for text in said if "does not follow the sound" in text]
    assert "train with CTC beside it" in notice
    assert "model.attention.score=location_aware" in notice


def test_ctc_alone(tmp_path):
    run = trained(tmp_path / "run", model__decoder={"kind": "none"}, training__max_steps=2)
    (found,) = run.predict(["morse:SOS"], trace=True)
    assert [*found.trace.attentions] == ["ctc"]
    assert "diagonality" not in run.task.validate(
        run.model, run.task.held_out(run.task.read(lambda text: None), run.assets, print)
    )


def test_mistakes_in_data_and_settings(tmp_path):
    rows = [{"audio": f"morse/{n}:E", "text": "A VERY LONG TEXT FOR ONE DOT " * 9} for n in range(20)]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    tables = {**Transcribe.Config.smallest, "data": {"path": str(path)}}
    with pytest.raises(DataError, match=r"a.jsonl, line 1: all utterances have more tokens than positions"):
        foci.train("transcribe", tables, out=tmp_path / "run", log=lambda text: None)
    rows[0]["audio"] = str(tmp_path / "none.wav")
    rows[1]["audio"] = "a.txt"
    for row in rows:
        row["text"] = "E"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    said = []
    tables["data"] = dict.fromkeys(("path", "valid", "test"), str(path))
    assert foci.train("transcribe", tables, out=tmp_path / "run", log=said.append).step == 8
    assert any("2 of 20 recordings are left out: 2 × missing file" in text for text in said)
    assert any("none.wav: there is no such file" in text for text in said)
    with pytest.raises(ConfigError, match="path and builtin are both set"):
        foci.train("transcribe", {"data": {"path": str(path), "builtin": 5}}, out=tmp_path / "no")
    with pytest.raises(ConfigError, match="expected frequencies between"):
        foci.train("transcribe", {"features": {"lowest": 9000.0}}, out=tmp_path / "no")
    with pytest.raises(ConfigError, match=r"data\.speeds is \[\].*at least 1 item"):
        foci.train("transcribe", {"data": {"speeds": []}}, out=tmp_path / "no")


def test_speeds_multiply_the_data(tmp_path):
    minutes = []
    for speeds in ((1.0,), (0.9, 1.0)):
        said = []
        trained(tmp_path / str(len(speeds)), said.append, data__speeds=speeds, training__max_steps=1)
        (told,) = [text for text in said if "minutes to train on" in text]
        minutes.append(float(told.split(" minutes")[0].rsplit(" ")[-1]))
    assert minutes[1] == pytest.approx((1 + 1 / 0.9) * minutes[0], rel=0.1)


@pytest.mark.parametrize("masks", [0, 2])
def test_masks_are_drawn_in_training(run, masks):
    changes = {
        "spec_augment.time_masks": masks,
        "model.encoder.dropout": 0.0,
        "model.decoder.dropout": 0.0,
        "ctc.weight": 0.5,
        "ctc.final_weight": 0.5,
    }
    task = Transcribe(configs.configure(TranscribeConfig, configs.put(Transcribe.Config.smallest, changes), "test"))
    batch = task.held_out(task.read(lambda text: None), run.assets, lambda text: None).batches[0]
    torch.manual_seed(0)
    model = task.model(run.assets)
    losses = {float(task.loss(model, batch).total.detach()) for _ in range(3)}
    assert len(losses) == (3 if masks else 1)


def test_the_command_line_prints_captions(run, tmp_path, capsys):
    path = wav(tmp_path / "a.wav", "SOS SOS")
    assert foci_cli.main(["predict", str(run.path), path, "--output-format", "ctm"]) == 0
    assert foci_cli.main(["predict", str(run.path), path, "--json"]) == 0
    out = capsys.readouterr().out
    assert json.loads(out.splitlines()[-1])["words"] is not None
    assert torch.is_grad_enabled()


# ---- times against the truth

PITCHES = {letter: 350.0 * 1.22**number for number, letter in enumerate("abcdef")}


def tones(words, chance):
    """Return words of letters that are tones of 0.1 s, and when each begins and ends."""
    silence = [int(8000 * seconds) for seconds in chance.uniform(0.15, 0.4, size=len(words) + 1)]
    samples, times = [np.zeros(silence[0])], []
    for word, gap in zip(words, silence[1:]):
        start = sum(map(len, samples))
        samples += [0.5 * np.sin(2 * np.pi * PITCHES[letter] * np.arange(800) / 8000) for letter in word]
        times.append((start / 8000, sum(map(len, samples)) / 8000))
        samples.append(np.zeros(gap))
    sound = np.concatenate(samples)
    return Sound((sound + 0.003 * chance.standard_normal(len(sound))).astype(np.float32), 8000), times


@pytest.mark.slow
def test_the_times_of_words_are_those_of_their_sound(tmp_path):
    chance = np.random.default_rng(0)
    rows, times = [], []
    for number in range(220):
        words = chance.choice(["abc", "cab", "fed", "dead", "bee", "face"], size=chance.integers(1, 5)).tolist()
        sound, spans = tones(words, chance)
        rows.append({"audio": str(write_sound(tmp_path / f"{number}.wav", sound)), "text": " ".join(words)})
        times.append(spans)
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[:200]), encoding="utf-8")
    settings = {
        "data": {"path": str(tmp_path / "a.jsonl"), "batch_size": 16},
        "features": {"sample_rate": 8000, "bins": 24},
        "model": {"preset": "tiny"},
        "training": {"max_steps": 250, "eval_every": 125, "learning_rate": 3e-3, "warmup": 20},
    }
    foci.train("transcribe", settings, out=tmp_path / "run", log=lambda text: None)
    found = foci.load(tmp_path / "run").predict([row["audio"] for row in rows[200:]])
    right = [number for number, one in enumerate(found, start=200) if one.output == rows[number]["text"]]
    assert len(right) >= 18
    # Times that are right are not called doubtful, wherever the attention looked.
    doubtful = [one for one in right if any("doubtful" in note for note in found[one - 200].details.get("notes", []))]
    assert not doubtful
    # An attention may well read a token a few cells from its sound, since the encoder's cells know their neighbors.
    for by, most in (("ctc", 0.06), ("attention", 0.5)):
        heard = [word[by] for number in right for word in found[number - 200].details["words"]]
        assert np.abs(np.subtract(heard, [span for number in right for span in times[number]])).mean() < most
