"""Text in any script: three sentences of our own in fifteen languages, from words and metrics to trained runs."""

import json
import unicodedata

import pytest
from wcwidth import iter_graphemes

import foci
from foci.data import Tokenizer
from foci.data.word_splitter import WordSplitter
from foci.metrics import overlap
from foci.metrics.captions import caption_scores
from foci.metrics.error_rates import character_errors, sentence_errors, word_errors, words_note
from foci.metrics.rouge import compared_words, rouge
from foci.scripts import graphemes, is_mark, join_texts, sentence_texts, without_spaces

pytest.importorskip("sacrebleu")
pytest.importorskip("jiwer")

TEXTS = {
    "en": ("This morning I had tea with Dr. Miller.", "Do you like green tea?", "We'll meet again tomorrow!"),
    "de": (
        "Heute Morgen habe ich z. B. mit Dr. Müller Tee getrunken.",
        "Mögen Sie grünen Tee?",
        "Wir sehen uns am 3. Mai wieder!",
    ),
    "fr": ("Ce matin, j’ai bu du thé avec M. Dupont.", "Aimez-vous le thé vert ?", "Nous nous reverrons demain !"),
    "tr": ("Bu sabah Doç. Dr. Işık ile çay içtim.", "Yeşil çay sever misiniz?", "İzmir’de yine görüşürüz!"),
    "vi": (
        "Sáng nay tôi uống trà với TS. Hùng.",
        "Anh có thích trà xanh không?",
        "Ngày mai chúng ta gặp lại nhé!",
    ),
    "ru": (
        "Сегодня утром я пил чай с А. С. Ивановым на ул. Мира.",
        "Вы любите зелёный чай?",
        "Увидимся завтра!",
    ),
    "ar": ("شربتُ الشاي صباح اليوم مع د. أحمد.", "هل تحب الشاي الأخضر؟", "سنلتقي غدًا!"),
    "fa": ("امروز صبح با دکتر احمدی چای خوردم.", "چای سبز دوست دارید؟", "فردا دوباره همدیگر را می‌بینیم!"),
    "he": ("הבוקר שתיתי תה עם ד״ר לוי.", "אתה אוהב תה ירוק?", "נִפָּגֵשׁ שוב מחר!"),
    "hi": ("आज सुबह मैंने डॉ. शर्मा के साथ चाय पी।", "क्या आपको हरी चाय पसंद है?", "हम कल फिर मिलेंगे!"),
    "th": ("เช้านี้ผมดื่มชากับคุณหมอสมชาย", "คุณชอบชาเขียวไหม", "พรุ่งนี้พบกันใหม่ที่ร้านน้ำชา"),
    "my": ("ဒီမနက် ဒေါက်တာအောင်နဲ့ လက်ဖက်ရည်သောက်ခဲ့တယ်။", "လက်ဖက်စိမ်း ကြိုက်သလား။", "မနက်ဖြန် ပြန်တွေ့ကြမယ်။"),
    "zh": ("今天早上我和王医生喝了茶。", "你喜欢绿茶吗?", "我们明天在“茶馆”再见！"),
    "ja": ("今朝、田中先生とお茶を飲みました。", "緑茶はお好きですか？", "また明日「茶屋」で会いましょう！"),
    "ko": ("오늘 아침 김 선생님과 차를 마셨습니다.", "녹차를 좋아하세요?", "내일 다시 만나요!"),
}
WORDS = {"en": 6, "de": 5, "fr": 7, "tr": 5, "vi": 7, "ru": 5, "ar": 5, "fa": 5, "he": 5, "hi": 7, "ko": 3}
"""How many words the second sentence has, with its mark; elsewhere they are its characters."""
SPACELESS = ("th", "my", "zh", "ja")

each_language = pytest.mark.parametrize("language", TEXTS)


def whole(language):
    """The sentences as one text, as the language writes it; Thai separates them by empty lines only."""
    return {"th": "\n\n", "zh": "", "ja": "", "my": ""}.get(language, " ").join(TEXTS[language])


def words_of(text):
    return WordSplitter("unicode").words(text)


def nfd(text):
    return unicodedata.normalize("NFD", text)


@each_language
def test_sentences_and_words(language):
    text = whole(language)
    assert [one.strip() for one in sentence_texts(text) if one.strip()] == list(TEXTS[language])
    assert WordSplitter("unicode").sentences(text) == [words_of(one) for one in TEXTS[language]]
    for rule in ("unicode", "treebank", "characters", "spaces"):
        splitter = WordSplitter(rule)
        words = splitter.words(text)
        assert "".join(words) == "".join(text.split())
        assert not any(is_mark(word[0]) for word in words)
        assert [text[start:end] for start, end in splitter.offsets(text)] == words
    question = TEXTS[language][1]
    assert len(words_of(question)) == WORDS.get(language, len(graphemes("".join(question.split()))))
    if language in ("th", "zh", "ja"):
        assert join_texts(words_of(question)) == question


@each_language
def test_characters(language):
    text = whole(language)
    for form in (text, nfd(text)):
        assert "".join(graphemes(form)) == form
        if language != "my":  # its vowels stay with their letters
            assert graphemes(form) == list(iter_graphemes(form))
    assert [unicodedata.normalize("NFC", one) for one in graphemes(nfd(text))] == graphemes(
        unicodedata.normalize("NFC", text)
    )


@each_language
@pytest.mark.parametrize("kind", ["bpe", "unigram", "bytes", "characters", "words"])
def test_tokenizers_give_the_text_back(language, kind):
    text = whole(language)
    tokenizer = Tokenizer.train([text, *TEXTS[language]], kind, 600)
    for form in (text, *TEXTS[language], f"  {text} 👍🏽\n"):
        encoding = tokenizer.encode(form)
        if kind in ("characters", "words") and form.endswith("\n"):
            continue  # unseen characters have no bytes there
        assert tokenizer.decode(encoding.ids) == form
        assert "".join(form[start:end] for start, end in dict.fromkeys(encoding.offsets)) == form


@each_language
def test_metrics(language):
    sentences, forms = list(TEXTS[language]), list(map(nfd, TEXTS[language]))
    others = [*sentences[1:], sentences[0]]
    chosen = overlap.tokenizer_for(sentences, language)
    assert chosen.name == overlap.tokenizer_for(sentences).name
    for produced in (sentences, forms):
        assert overlap.bleu(produced, sentences, tokenize=chosen.name).score == pytest.approx(100)
        assert overlap.chrf(produced, sentences).score == pytest.approx(100)
        assert overlap.exact_matches(produced, sentences) == 1
        assert word_errors(sentences, produced).errors == character_errors(sentences, produced).errors == 0
        assert sentence_errors(sentences, produced) == 0
        assert caption_scores(produced, [[one] for one in sentences])["bleu4"] == pytest.approx(100)
        for one, other in zip(produced, sentences):
            assert compared_words(one) == compared_words(other) != []
            assert rouge(compared_words(one), compared_words(other))["rougeL"].f == 1
    assert overlap.bleu(others, sentences, tokenize=chosen.name).score < 50
    assert character_errors(sentences, others).rate > 0.4
    assert all(rouge(compared_words(a), compared_words(b))["rouge2"].f < 0.5 for a, b in zip(sentences, others))
    spaced = [" ".join(graphemes(one)) for one in sentences]
    assert (character_errors(sentences, spaced).errors == 0) == (language in SPACELESS)
    assert (words_note(sentences) is not None) == (language in SPACELESS)
    assert all(without_spaces(one) == "".join(one.split()) for one in sentences if language in SPACELESS)


# ---- trained runs


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    """A run that names the language of a sentence, trained on sentences in both normal forms."""
    folder = tmp_path_factory.mktemp("languages")
    rows = [
        {"text": form(f"{number} {sentence}"), "label": language}
        for language, sentences in TEXTS.items()
        for sentence in sentences
        for number in range(6)
        for form in (nfd if number % 2 else str,)
    ]
    (folder / "data.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    settings = {
        "data": {"path": str(folder / "data.jsonl"), "valid_share": 0.2, "test_share": 0.0},
        "model": {"embedding_dim": 24},
        "training": {"max_steps": 120, "eval_every": 60, "warmup": 5, "learning_rate": 0.01},
    }
    foci.train("classify", settings, out=folder / "run", log=lambda text: None)
    return foci.load(folder / "run")


@each_language
def test_a_classifier_knows_the_language_in_either_form(classifier, language):
    for sentence in TEXTS[language]:
        one, other = classifier.predict([sentence, nfd(sentence)], trace=True)
        assert one.output == language
        assert one.details["probabilities"] == pytest.approx(other.details["probabilities"], abs=1e-6)
        assert one.details.get("notes") == other.details.get("notes")
        assert other.trace.axes["document"].labels == one.trace.axes["document"].labels


@pytest.mark.slow
@pytest.mark.parametrize("language", ["ar", "hi", "th", "vi", "zh"])  # right to left, marks, no spaces
def test_a_translator_learns_by_heart(language, tmp_path):
    pairs = [{"source": a, "target": b} for a, b in zip(TEXTS[language], TEXTS["en"])]
    pairs += [{"source": pair["target"], "target": nfd(pair["source"])} for pair in pairs]
    for name in ("train", "valid"):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, pairs)), encoding="utf-8")
    settings = {
        "data": {
            "path": str(tmp_path / "train.jsonl"),
            "valid": str(tmp_path / "valid.jsonl"),
            "test_share": 0.0,
            "batch_tokens": 800,
            "columns": ["source", "target"],
        },
        "tokenizer": {"kind": "words", "size": 200, "shared": True},
        "model": {
            "kind": "rnn",
            "encoder": {"embedding_dim": 32, "hidden_dim": 64, "dropout": 0.0},
            "decoder": {"embedding_dim": 32, "hidden_dim": 64, "dropout": 0.0},
        },
        "label_smoothing": 0.0,
        "training": {"max_steps": 120, "eval_every": 60, "warmup": 10, "learning_rate": 0.01},
    }
    foci.train("translate", settings, out=tmp_path / "run", log=lambda text: None)
    run = foci.load(tmp_path / "run")
    produced = [one.output for one in run.predict([pair["source"] for pair in pairs])]
    assert produced == [unicodedata.normalize("NFC", pair["target"]) for pair in pairs]
    evaluation = run.evaluate(pairs[len(TEXTS[language]) :])
    assert evaluation.metrics["bleu"] == pytest.approx(100)
    assert "by the script of the references" in evaluation.notes["bleu_tokenizer"]
