"""Real corpora, where they lie beside the checkout or in FOCI_DATA: counted as their own descriptions count them."""

from real_data import real

from foci.tasks.tag.reader import read_tagged
from foci.tasks.tag.splitting import agreement


def test_snips_as_a_folder_of_aligned_files():
    found = read_tagged(real("snips") / "valid")
    assert len(found.sentences) == 700
    assert len({one.intent for one in found.sentences}) == 7
    assert (found.scheme, [note for note in found.notes if "malformed" in note]) == ("BIO", [])


def test_wnut17_in_columns():
    found = read_tagged(real("wnut17") / "wnut17train.conll.gz")
    sentences = found.sentences
    assert (len(sentences), sum(len(one.words) for one in sentences)) == (3394, 62730)
    assert sum(len(one.spans) for one in sentences) == 1975
    assert {span.label for one in sentences for span in one.spans} == {
        "corporation", "creative-work", "group", "location", "person", "product"}  # fmt: skip
    assert found.rule == "treebank"
    assert agreement("treebank", sentences).sentences > 3 * agreement("unicode", sentences).sentences


def test_english_ewt_in_conllu():
    found = read_tagged(real("ud-english-ewt") / "en_ewt-ud-dev.conllu.xz")
    assert (found.scheme, len(found.sentences)) == ("plain", 2001)
    assert sum(len(one.words) for one in found.sentences) == 25147
    assert len({span.label for one in found.sentences for span in one.spans}) == 17
    assert found.sentences[1].text.endswith("federal courts in the Washington area.")
    assert agreement(found.rule, found.sentences).words > 0.98 > agreement("unicode", found.sentences).words + 0.03
