"""Morphology behind the phrasebook: Italian and English words in their right form."""

import pytest

from mt.data.phrasebook import english, italian, italian_numbers, italian_verbs, lexicon


@pytest.mark.parametrize(
    ("phrase", "gender", "one", "several", "a"),
    [
        ("libro", "m", "il libro", "i libro", "un libro"),
        ("amico", "m", "l'amico", "gli amico", "un amico"),
        ("amica", "f", "l'amica", "le amica", "un'amica"),
        ("zaino", "m", "lo zaino", "gli zaino", "uno zaino"),
        ("specchio", "m", "lo specchio", "gli specchio", "uno specchio"),
        ("psicologo", "m", "lo psicologo", "gli psicologo", "uno psicologo"),
        ("gnomo", "m", "lo gnomo", "gli gnomo", "uno gnomo"),
        ("yogurt", "m", "lo yogurt", "gli yogurt", "uno yogurt"),
        ("strada", "f", "la strada", "le strada", "una strada"),
        ("sedia", "f", "la sedia", "le sedia", "una sedia"),
        ("sale", "m", "il sale", "i sale", "un sale"),
        ("vecchio specchio", "m", "il vecchio specchio", "i vecchio specchio", "un vecchio specchio"),
        ("strano uomo", "m", "lo strano uomo", "gli strano uomo", "uno strano uomo"),
    ],
)
def test_articles_follow_the_next_sound(phrase: str, gender: str, one: str, several: str, a: str) -> None:
    assert italian.definite(phrase, gender) == one
    assert italian.definite(phrase, gender, plural=True) == several
    assert italian.indefinite(phrase, gender) == a


@pytest.mark.parametrize(
    ("preposition", "phrase", "fused"),
    [
        ("di", "il libro", "del libro"),
        ("di", "lo zio", "dello zio"),
        ("di", "l'olio", "dell'olio"),
        ("a", "la casa", "alla casa"),
        ("a", "gli amici", "agli amici"),
        ("da", "i nonni", "dai nonni"),
        ("da", "l'Italia", "dall'Italia"),
        ("in", "il giardino", "nel giardino"),
        ("in", "lo zaino", "nello zaino"),
        ("in", "l'acqua", "nell'acqua"),
        ("su", "lo specchio", "sullo specchio"),
        ("su", "le sedie", "sulle sedie"),
        ("vicino a", "l'albero", "vicino all'albero"),
        ("di", "mia madre", "di mia madre"),
        ("a", "una donna", "a una donna"),
        ("a", "Anna", "ad Anna"),
        ("a", "Roma", "a Roma"),
        ("con", "il cane", "con il cane"),
        ("di", "Ilaria", "di Ilaria"),
    ],
)
def test_prepositions_fuse_with_articles_only(preposition: str, phrase: str, fused: str) -> None:
    assert italian.preposition(preposition, phrase) == fused


@pytest.mark.parametrize(
    ("lemma", "plural"),
    [
        ("house", "case"),
        ("dog", "cani"),
        ("friend", "amici"),
        ("hotel", "alberghi"),
        ("mushroom", "funghi"),
        ("psychologist", "psicologi"),
        ("uncle", "zii"),
        ("son", "figli"),
        ("orange", "arance"),
        ("beach", "spiagge"),
        ("shirt", "camicie"),
        ("pharmacy", "farmacie"),
        ("cow", "mucche"),
        ("city", "città"),
        ("photo", "foto"),
        ("film", "film"),
        ("bus", "autobus"),
        ("hand", "mani"),
        ("egg", "uova"),
        ("man", "uomini"),
        ("problem", "problemi"),
        ("journalist", "giornalisti"),
    ],
)
def test_italian_plurals(lemma: str, plural: str) -> None:
    assert lexicon.noun(lemma).italian_plural == plural


@pytest.mark.parametrize(
    ("adjective", "forms"),
    [
        ("rosso", "rosso rossi rossa rosse"),
        ("felice", "felice felici felice felici"),
        ("stanco", "stanco stanchi stanca stanche"),
        ("simpatico", "simpatico simpatici simpatica simpatiche"),
        ("lungo", "lungo lunghi lunga lunghe"),
        ("vecchio", "vecchio vecchi vecchia vecchie"),
        ("blu", "blu blu blu blu"),
        ("rosa", "rosa rosa rosa rosa"),
    ],
)
def test_adjectives_agree(adjective: str, forms: str) -> None:
    made = [italian.agree(adjective, gender, plural) for gender in "mf" for plural in (False, True)]
    assert made == forms.split()


def test_words_before_a_noun_that_behave_like_articles() -> None:
    assert italian.adjective_before("bello", "libro", "m") == "bel libro"
    assert italian.adjective_before("bello", "specchio", "m") == "bello specchio"
    assert italian.adjective_before("bello", "albero", "m") == "bell'albero"
    assert italian.adjective_before("bello", "fiori", "m", plural=True) == "bei fiori"
    assert italian.adjective_before("bello", "alberi", "m", plural=True) == "begli alberi"
    assert italian.adjective_before("buono", "amico", "m") == "buon amico"
    assert italian.adjective_before("buono", "zucchero", "m") == "buono zucchero"
    assert italian.adjective_before("buono", "pizza", "f") == "buona pizza"
    assert italian.that("libro", "m") == "quel libro"
    assert italian.that("amica", "f") == "quell'amica"
    assert italian.that("studenti", "m", plural=True) == "quegli studenti"
    assert italian.this("anno", "m") == "quest'anno"
    assert italian.this("case", "f", plural=True) == "queste case"
    assert italian.partitive("olio", "m") == "dell'olio"
    assert italian.partitive("studenti", "m", plural=True) == "degli studenti"
    assert italian.elided_di("acqua") == "d'acqua"
    assert italian.join("un po'", "stanco") == "un po' stanco"


@pytest.mark.parametrize(
    ("verb", "tense", "forms"),
    [
        ("parlare", "present", "parlo parli parla parliamo parlate parlano"),
        ("prendere", "present", "prendo prendi prende prendiamo prendete prendono"),
        ("dormire", "present", "dormo dormi dorme dormiamo dormite dormono"),
        ("capire", "present", "capisco capisci capisce capiamo capite capiscono"),
        ("cercare", "present", "cerco cerchi cerca cerchiamo cercate cercano"),
        ("pagare", "present", "pago paghi paga paghiamo pagate pagano"),
        ("mangiare", "present", "mangio mangi mangia mangiamo mangiate mangiano"),
        ("essere", "present", "sono sei è siamo siete sono"),
        ("avere", "present", "ho hai ha abbiamo avete hanno"),
        ("andare", "present", "vado vai va andiamo andate vanno"),
        ("venire", "present", "vengo vieni viene veniamo venite vengono"),
        ("fare", "present", "faccio fai fa facciamo fate fanno"),
        ("dare", "present", "do dai dà diamo date danno"),
        ("bere", "present", "bevo bevi beve beviamo bevete bevono"),
        ("potere", "present", "posso puoi può possiamo potete possono"),
        ("dovere", "present", "devo devi deve dobbiamo dovete devono"),
        ("volere", "present", "voglio vuoi vuole vogliamo volete vogliono"),
        ("uscire", "present", "esco esci esce usciamo uscite escono"),
        ("scegliere", "present", "scelgo scegli sceglie scegliamo scegliete scelgono"),
        ("essere", "imperfect", "ero eri era eravamo eravate erano"),
        ("bere", "imperfect", "bevevo bevevi beveva bevevamo bevevate bevevano"),
        ("lavorare", "imperfect", "lavoravo lavoravi lavorava lavoravamo lavoravate lavoravano"),
        ("mangiare", "future", "mangerò mangerai mangerà mangeremo mangerete mangeranno"),
        ("pagare", "future", "pagherò pagherai pagherà pagheremo pagherete pagheranno"),
        ("studiare", "future", "studierò studierai studierà studieremo studierete studieranno"),
        ("vedere", "future", "vedrò vedrai vedrà vedremo vedrete vedranno"),
        ("venire", "future", "verrò verrai verrà verremo verrete verranno"),
        ("volere", "conditional", "vorrei vorresti vorrebbe vorremmo vorreste vorrebbero"),
    ],
)
def test_conjugation(verb: str, tense: italian_verbs.Tense, forms: str) -> None:
    assert [italian_verbs.conjugate(verb, person, tense) for person in range(6)] == forms.split()


def test_compound_forms_and_their_agreement() -> None:
    group = italian_verbs.verb_group
    assert group("andare", 2, "past", auxiliary="essere", gender="f") == "è andata"
    assert group("andare", 5, "past", auxiliary="essere", gender="m") == "sono andati"
    assert group("vedere", 0, "past", clitic="lo") == "l'ho visto"
    assert group("vedere", 0, "past", clitic="la", negative=True) == "non l'ho vista"
    assert group("vedere", 3, "past", clitic="le") == "le abbiamo viste"
    assert group("dare", 3, "past", clitic="le", dative=True) == "le abbiamo dato"
    assert group("vedere", 2, "past", clitic="mi") == "mi ha visto"
    assert group("aspettare", 0, "present", clitic="la") == "la aspetto"
    assert group("svegliarsi", 5, "past", gender="f") == "si sono svegliate"
    assert group("alzarsi", 0, "present", negative=True) == "non mi alzo"
    assert group("divertirsi", 2, "progressive") == "si sta divertendo"
    assert group("bere", 1, "progressive") == "stai bevendo"
    assert group("mangiare", 0, "past", negative=True, adverb="mai") == "non ho mai mangiato"


def test_participles_and_imperatives() -> None:
    irregular = "aperto chiuso letto scritto preso rotto scelto messo bevuto visto perso detto fatto corso"
    verbs = "aprire chiudere leggere scrivere prendere rompere scegliere mettere bere vedere perdere dire fare correre"
    assert [italian_verbs.participle(verb) for verb in verbs.split()] == irregular.split()
    assert [italian_verbs.imperative(verb) for verb in ("parlare", "leggere", "aprire", "finire")] == [
        "parla",
        "leggi",
        "apri",
        "finisci",
    ]
    assert italian_verbs.with_enclitic(italian_verbs.imperative("dare"), "mi") == "dammi"
    assert italian_verbs.with_enclitic("vedere", "ti") == "vederti"
    assert italian_verbs.with_enclitic("aspetta", "ci") == "aspettaci"


def test_numbers_and_times() -> None:
    numbers = {1: "uno", 16: "sedici", 21: "ventuno", 23: "ventitré", 28: "ventotto", 38: "trentotto", 81: "ottantuno"}
    numbers |= {40: "quaranta", 67: "sessantasette", 100: "cento"}
    assert {value: italian_numbers.number(value) for value in numbers} == numbers
    assert english.number(21) == "twenty-one"
    with pytest.raises(ValueError, match="101"):
        italian_numbers.number(101)
    assert italian_numbers.years_of_age(20) == "vent'anni"
    assert italian_numbers.years_of_age(23) == "ventitré anni"
    times = {
        (1, 0): ("one o'clock", "è l'una", "all'una"),
        (3, 30): ("half past three", "sono le tre e mezza", "alle tre e mezza"),
        (8, 15): ("a quarter past eight", "sono le otto e un quarto", "alle otto e un quarto"),
        (12, 45): ("a quarter to one", "è l'una meno un quarto", "all'una meno un quarto"),
        (5, 50): ("ten to six", "sono le sei meno dieci", "alle sei meno dieci"),
        (12, 0): ("noon", "è mezzogiorno", "a mezzogiorno"),
        (0, 0): ("midnight", "è mezzanotte", "a mezzanotte"),
    }
    for time, (said, it_is, at) in times.items():
        clock = italian_numbers.clock(*time)
        assert (english.clock(*time), italian_numbers.it_is(clock), italian_numbers.at_time(clock)) == (said, it_is, at)


def test_english_words() -> None:
    assert [english.ing(verb) for verb in ("write", "run", "open", "look for", "see", "be")] == [
        "writing",
        "running",
        "opening",
        "looking for",
        "seeing",
        "being",
    ]
    assert english.verb("study").past == "studied"
    assert english.verb("hug").past == "hugged"
    assert english.verb("go out/went out/gone out").participle == "gone out"
    assert [english.plural(noun) for noun in ("box", "story", "toy", "church")] == [
        "boxes",
        "stories",
        "toys",
        "churches",
    ]
    assert [english.comparative(word) for word in ("big", "heavy", "nice", "famous")] == [
        "bigger",
        "heavier",
        "nicer",
        "more famous",
    ]
    assert english.superlative("beautiful") == "most beautiful"
    assert english.a("old man") == "an old man"
    assert english.a("university") == "a university"
    assert english.statement("she", english.verb("eat/ate/eaten"), 2, "present", negative=True) == "she does not eat"
    assert english.statement("he", english.verb("can"), 2, "present", negative=True) == "he cannot"
    assert english.question("you", english.verb("eat/ate/eaten"), 1, "past") == "did you eat"
    assert english.contract("I am sure she will not come") == "I'm sure she won't come"


def test_lexicon_is_consistent() -> None:
    nouns = [noun.lemma for noun in lexicon.nouns()]
    assert len(nouns) == len(set(nouns))
    known_kinds = {kind for noun in lexicon.nouns() for kind in noun.kinds} | set(nouns)
    for word in (*lexicon.words_of("adjective", "nationality"), *lexicon.verbs_of("verb", "action", "giving")):
        assert word.kinds <= known_kinds, f"{word.lemma}: no noun is {word.kinds - known_kinds}"
        assert not word.kinds or lexicon.nouns_for(word), word.lemma
