"""Morphology of the phrasebook, against forms written by hand."""

import pytest

from phrasebook import english, italian, italian_numbers, italian_verbs, lexicon


@pytest.mark.parametrize(
    ("noun", "gender", "forms"),
    [
        ("libro", "m", "il libro, i libro, un libro"),
        ("amico", "m", "l'amico, gli amico, un amico"),
        ("amica", "f", "l'amica, le amica, un'amica"),
        ("zaino", "m", "lo zaino, gli zaino, uno zaino"),
        ("specchio", "m", "lo specchio, gli specchio, uno specchio"),
        ("psicologo", "m", "lo psicologo, gli psicologo, uno psicologo"),
        ("yogurt", "m", "lo yogurt, gli yogurt, uno yogurt"),
        ("sedia", "f", "la sedia, le sedia, una sedia"),
        ("vecchio specchio", "m", "il vecchio specchio, i vecchio specchio, un vecchio specchio"),
    ],
)
def test_articles_follow_the_next_sound(noun: str, gender: str, forms: str) -> None:
    made = italian.definite(noun, gender), italian.definite(noun, gender, plural=True), italian.indefinite(noun, gender)
    assert ", ".join(made) == forms


def test_prepositions_fuse_with_articles_only() -> None:
    phrases = "di+lo zio, a+gli amici, da+l'Italia, in+il giardino, vicino a+l'albero, di+mia madre, a+Anna"
    fused = "dello zio, agli amici, dall'Italia, nel giardino, vicino all'albero, di mia madre, ad Anna"
    assert ", ".join(italian.preposition(*phrase.split("+")) for phrase in phrases.split(", ")) == fused


def test_italian_plurals() -> None:
    singular = "dog friend hotel uncle orange beach shirt pharmacy city photo film hand egg man journalist"
    plural = "cani amici alberghi zii arance spiagge camicie farmacie città foto film mani uova uomini giornalisti"
    assert [lexicon.noun(lemma).italian_plural for lemma in singular.split()] == plural.split()


@pytest.mark.parametrize(
    "forms",
    [
        "rosso rossi rossa rosse",
        "felice felici felice felici",
        "stanco stanchi stanca stanche",
        "simpatico simpatici simpatica simpatiche",
        "vecchio vecchi vecchia vecchie",
        "blu blu blu blu",
    ],
)
def test_adjectives_agree(forms: str) -> None:
    made = [italian.agree(forms.split()[0], gender, plural) for gender in "mf" for plural in (False, True)]
    assert made == forms.split()


def test_words_before_a_noun_that_behave_like_articles() -> None:
    assert italian.adjective_before("bello", "specchio", "m") == "bello specchio"
    assert italian.adjective_before("bello", "alberi", "m", plural=True) == "begli alberi"
    assert italian.adjective_before("buono", "amico", "m") == "buon amico"
    assert italian.adjective_before("buono", "zucchero", "m") == "buono zucchero"
    assert italian.that("amica", "f") == "quell'amica"
    assert italian.that("studenti", "m", plural=True) == "quegli studenti"
    assert italian.this("anno", "m") == "quest'anno"
    assert italian.partitive("olio", "m") == "dell'olio"


@pytest.mark.parametrize(
    ("tense", "verb", "forms"),
    [
        ("present", "prendere", "prendo prendi prende prendiamo prendete prendono"),
        ("present", "dormire", "dormo dormi dorme dormiamo dormite dormono"),
        ("present", "capire", "capisco capisci capisce capiamo capite capiscono"),
        ("present", "cercare", "cerco cerchi cerca cerchiamo cercate cercano"),
        ("present", "mangiare", "mangio mangi mangia mangiamo mangiate mangiano"),
        ("imperfect", "essere", "ero eri era eravamo eravate erano"),
        ("imperfect", "bere", "bevevo bevevi beveva bevevamo bevevate bevevano"),
        ("future", "mangiare", "mangerò mangerai mangerà mangeremo mangerete mangeranno"),
        ("future", "pagare", "pagherò pagherai pagherà pagheremo pagherete pagheranno"),
        ("conditional", "volere", "vorrei vorresti vorrebbe vorremmo vorreste vorrebbero"),
    ],
)
def test_conjugation(tense: italian_verbs.Tense, verb: str, forms: str) -> None:
    assert [italian_verbs.conjugate(verb, person, tense) for person in range(6)] == forms.split()


def test_compound_forms_and_their_agreement() -> None:
    group = italian_verbs.verb_group
    assert group("andare", 5, "past", auxiliary="essere", gender="m") == "sono andati"
    assert group("vedere", 0, "past", clitic="la", negative=True) == "non l'ho vista"
    assert group("dare", 3, "past", clitic="le", dative=True) == "le abbiamo dato"
    assert group("vedere", 2, "past", clitic="mi") == "mi ha visto"
    assert group("svegliarsi", 5, "past", gender="f") == "si sono svegliate"
    assert group("divertirsi", 2, "progressive") == "si sta divertendo"
    assert group("mangiare", 0, "past", negative=True, adverb="mai") == "non ho mai mangiato"
    assert italian_verbs.with_enclitic(italian_verbs.imperative("dare"), "mi") == "dammi"
    assert italian_verbs.with_enclitic("vedere", "ti") == "vederti"


def test_numbers_and_times() -> None:
    numbers = {1: "uno", 16: "sedici", 21: "ventuno", 23: "ventitré", 28: "ventotto", 67: "sessantasette", 100: "cento"}
    assert {value: italian_numbers.number(value) for value in numbers} == numbers
    assert italian_numbers.years_of_age(20) == "vent'anni"
    times = {
        (1, 0): ("one o'clock", "è l'una", "all'una"),
        (3, 30): ("half past three", "sono le tre e mezza", "alle tre e mezza"),
        (5, 50): ("ten to six", "sono le sei meno dieci", "alle sei meno dieci"),
        (12, 0): ("noon", "è mezzogiorno", "a mezzogiorno"),
    }
    for time, forms in times.items():
        clock = italian_numbers.clock(*time)
        assert (english.clock(*time), italian_numbers.it_is(clock), italian_numbers.at_time(clock)) == forms


def test_english_words() -> None:
    verbs = [english.ing(verb) for verb in ("write", "run", "look for", "see", "be")]
    assert verbs == ["writing", "running", "looking for", "seeing", "being"]
    assert [english.verb(verb).past for verb in ("study", "hug")] == ["studied", "hugged"]
    assert [english.plural(noun) for noun in ("box", "story", "toy")] == ["boxes", "stories", "toys"]
    adjectives = [english.comparative(word) for word in ("big", "heavy", "nice", "famous")]
    assert adjectives == ["bigger", "heavier", "nicer", "more famous"]
    assert [english.a(noun) for noun in ("old man", "university")] == ["an old man", "a university"]
    assert english.statement("she", english.verb("eat/ate/eaten"), 2, "present", negative=True) == "she does not eat"
    assert english.question("you", english.verb("eat/ate/eaten"), 1, "past") == "did you eat"
    assert english.contract("I am sure she will not come") == "I'm sure she won't come"


def test_lexicon_is_consistent() -> None:
    nouns = [noun.lemma for noun in lexicon.nouns()]
    assert len(nouns) == len(set(nouns))
    known_kinds = {kind for noun in lexicon.nouns() for kind in noun.kinds} | set(nouns)
    for word in (*lexicon.words_of("adjective", "nationality"), *lexicon.verbs_of("verb", "action", "giving")):
        assert word.kinds <= known_kinds, f"{word.lemma}: no noun is {word.kinds - known_kinds}"
        assert not word.kinds or lexicon.nouns_for(word), word.lemma
