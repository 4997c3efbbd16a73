"""Translations written by hand, each beside the same sentence built from words by the phrasebook's grammar.

English and Italian are lower case and have no final mark, as the grammar makes them.
"""

from mt.data.phrasebook import english, italian_numbers, lexicon
from mt.data.phrasebook.italian import PRONOUNS
from mt.data.phrasebook.patterns import (
    asking,
    counting,
    describing,
    doing,
    feeling,
    owning,
    wanting,
)
from mt.data.phrasebook.phrases import (
    Draft,
    Form,
    Phrase,
    adjective_phrase,
    clause,
    draft,
    noun_phrase,
    place,
    plain,
    pronoun_subject,
    region,
    said,
    wh_question,
    with_preposition,
)

ME, YOU, HIM, HER, US, YOU_ALL, THEM = PRONOUNS
I_, YOU_, HE, SHE, WE, YOU_ALL_, THEY = map(pronoun_subject, PRONOUNS)
ANNA = Phrase("Anna", "Anna", 2, "f", ("Anna",), "her")
GO, COME = lexicon.verb("go", "motion"), lexicon.verb("come", "motion")
MARCO = Phrase("Marco", "Marco", 2, "m", ("Marco",), "his")


def np(lemma: str, determiner: str = "the", plural: bool = False, adjective: str = "") -> Phrase:
    """A noun phrase by name: np("book", "a"), np("friend", "my", plural=True)."""
    word = lexicon.word("adjective", adjective) if adjective else None
    return noun_phrase(lexicon.noun(lemma), determiner, plural, word)


def do(lemma: str) -> lexicon.Verb:
    """A verb with an object."""
    return lexicon.verb(lemma, "verb")


def is_(subject: Phrase, adjective: str, form: Form = "statement", tense: english.Tense = "present") -> Draft:
    """Somebody is so."""
    rest = adjective_phrase(lexicon.word("adjective", adjective), subject)
    return describing.be(subject, rest, form, tense)


def when(lemma: str) -> Phrase:
    """A time by name."""
    return said(lexicon.word("when", lemma))


def give(lemma: str) -> lexicon.Verb:
    """A verb that takes something to someone."""
    return lexicon.verb(lemma, "giving")


def at(lemma: str) -> Phrase:
    """At a place."""
    return place(lexicon.noun(lemma), "at")


def to(lemma: str) -> Phrase:
    """To a place."""
    return place(lexicon.noun(lemma), "to")


def clock(words: str, hour: int, minute: int = 0) -> Phrase:
    """At a time of day."""
    return plain(f"at {words}", italian_numbers.at_time(italian_numbers.clock(hour, minute)))


ROWS: list[tuple[str, str, Draft]] = [
    # articles, elision, agreement, dropped subjects
    (
        "the old woman does not drink the water",
        "la vecchia donna non beve l'acqua",
        draft(clause(np("woman", adjective="old"), do("drink"), "present", np("water"), form="negative")),
    ),
    ("we are tired", "siamo stanchi", is_(WE, "tired")),
    ("she is tired", "è stanca", is_(SHE, "tired")),
    ("Anna is tired", "Anna è stanca", is_(ANNA, "tired")),
    ("are you tired", "sei stanco", is_(YOU_, "tired", form="question")),
    ("I was sick", "ero malato", is_(I_, "sick", tense="past")),
    ("they will be happy", "saranno felici", is_(THEY, "happy", tense="future")),
    ("the eggs are fresh", "le uova sono fresche", is_(np("egg", plural=True), "fresh")),
    ("that mirror is broken", "quello specchio è rotto", is_(np("mirror", "that"), "broken")),
    ("those students are nice", "quegli studenti sono simpatici", is_(np("student", "that", True), "nice")),
    (
        "she is a student",
        "è una studentessa",
        describing.be(SHE, describing.profession(lexicon.noun("student"), SHE)),
    ),
    (
        "she is a teacher",
        "è un'insegnante",
        describing.be(SHE, describing.profession(lexicon.noun("teacher"), SHE)),
    ),
    (
        "Anna is taller than me",
        "Anna è più alta di me",
        describing.comparison(ANNA, lexicon.word("adjective", "tall"), plain("me", "me")),
    ),
    (
        "the bear is bigger than the dog",
        "l'orso è più grande del cane",
        describing.comparison(np("bear"), lexicon.word("adjective", "big"), np("dog")),
    ),
    (
        "I have a new backpack",
        "ho un nuovo zaino",
        draft(clause(I_, do("have"), "present", np("backpack", "a", adjective="new"))),
    ),
    (
        "we want two red apples",
        "vogliamo due mele rosse",
        draft(clause(WE, do("want"), "present", np("apple", "2", True, "red"))),
    ),
    (
        "he is eating some bread",
        "sta mangiando del pane",
        draft(clause(HE, do("eat"), "progressive", np("bread", "some"))),
    ),
    ("all the women", "tutte le donne", draft(np("woman", "all the", True))),
    ("many friends", "molti amici", draft(np("friend", "many", True))),
    # possessives
    ("I have two sisters", "ho due sorelle", draft(clause(I_, do("have"), "present", np("sister", "2", True)))),
    ("where is your friend", "dov'è il tuo amico", owning.where(np("friend", "your"))),
    ("where are my keys", "dove sono le mie chiavi", owning.where(np("key", "my", True))),
    ("my father is rich", "mio padre è ricco", is_(np("father", "my"), "rich")),
    ("my brothers", "i miei fratelli", draft(np("brother", "my", True))),
    ("their mother", "la loro madre", draft(np("mother", "their"))),
    ("my house", "la mia casa", draft(np("house", "my"))),
    (
        "Anna's house",
        "la casa di Anna",
        draft(owning.belonging(ANNA, lexicon.noun("house"))),
    ),
    (
        "this is my sister",
        "questa è mia sorella",
        describing.be(describing.pointer(np("sister", "my")), np("sister", "my")),
    ),
    # tenses
    (
        "she bought a car yesterday",
        "ha comprato una macchina ieri",
        draft(clause(SHE, do("buy"), "past", np("car", "a"), when("yesterday"))),
    ),
    (
        "Anna went to the station",
        "Anna è andata alla stazione",
        draft(clause(ANNA, GO, "past", to("station"))),
    ),
    (
        "they did not come to school",
        "non sono venuti a scuola",
        draft(clause(THEY, COME, "past", to("school"), form="negative")),
    ),
    (
        "you all will go to Italy",
        "andrete in Italia",
        draft(clause(YOU_ALL_, GO, "future", region(lexicon.word("country", "Italy"), "to"))),
    ),
    (
        "we used to work at the bank",
        "lavoravamo in banca",
        draft(clause(WE, lexicon.verb("work", "action"), "used", at("bank"))),
    ),
    ("I had a dog", "avevo un cane", draft(clause(I_, do("have"), "past", np("dog", "a")))),
    (
        "have you already read the letter",
        "hai già letto la lettera",
        draft(
            clause(YOU_, do("read"), "perfect", np("letter"), form="question", adverb=lexicon.word("often", "already"))
        ),
    ),
    (
        "I have never lost the keys",
        "non ho mai perso le chiavi",
        draft(clause(I_, do("lose"), "perfect", np("key", plural=True), adverb=lexicon.word("often", "never"))),
    ),
    (
        "my mother got up at seven o'clock",
        "mia madre si è alzata alle sette",
        draft(clause(np("mother", "my"), lexicon.verb("get up", "reflexive"), "past", clock("seven o'clock", 7))),
    ),
    # pronouns
    (
        "I love you very much",
        "ti amo molto",
        draft(clause(I_, do("love"), "present", said(lexicon.word("how", "very much")), direct=YOU)),
    ),
    ("we do not know her", "non la conosciamo", draft(clause(WE, do("know"), "present", form="negative", direct=HER))),
    ("I see him", "lo vedo", draft(clause(I_, do("see"), "present", direct=HIM))),
    ("I saw him", "l'ho visto", draft(clause(I_, do("see"), "past", direct=HIM))),
    ("I saw her yesterday", "l'ho vista ieri", draft(clause(I_, do("see"), "past", when("yesterday"), direct=HER))),
    ("did you see them", "li hai visti", draft(clause(YOU_, do("see"), "past", form="question", direct=THEM))),
    ("she called us", "ci ha chiamato", draft(clause(SHE, do("call"), "past", direct=US))),
    (
        "I give you the book",
        "ti do il libro",
        draft(clause(I_, give("give"), "present", np("book"), indirect=YOU)),
    ),
    (
        "she gave me a book",
        "mi ha dato un libro",
        draft(clause(SHE, give("give"), "past", np("book", "a"), indirect=ME)),
    ),
    (
        "we sent her the flowers",
        "le abbiamo mandato i fiori",
        draft(clause(WE, give("send"), "past", np("flower", plural=True), indirect=HER)),
    ),
    (
        "he gave the key to the girl",
        "ha dato la chiave alla ragazza",
        draft(clause(HE, give("give"), "past", np("key"), with_preposition("to", "a", np("girl")))),
    ),
    (
        "can you help me",
        "puoi aiutarmi",
        draft(clause(YOU_, lexicon.verb("can", "modal"), "present", wanting.done_to(do("help"), ME), form="question")),
    ),
    (
        "give me the key",
        "dammi la chiave",
        draft(wanting.told(give("give"), ME, dative=True), np("key")),
    ),
    ("do not follow me", "non seguirmi", draft(wanting.told(do("follow"), ME, negative=True))),
    ("open the window", "apri la finestra", draft(wanting.told(do("open")), np("window"))),
    (
        "I bought the apple and ate it",
        "ho comprato la mela e l'ho mangiata",
        draft(clause(I_, do("buy"), "past", np("apple")), doing.and_it(I_, do("eat"), "past", np("apple"))),
    ),
    # likes, states, what hurts
    ("I like bread", "mi piace il pane", feeling.pleases(I_, feeling.in_general(lexicon.noun("bread")))),
    ("I like cats", "mi piacciono i gatti", feeling.pleases(I_, feeling.in_general(lexicon.noun("cat")))),
    (
        "my father does not like wine",
        "a mio padre non piace il vino",
        feeling.pleases(np("father", "my"), feeling.in_general(lexicon.noun("wine")), "negative"),
    ),
    ("are you hungry", "hai fame", draft(asking.has_state(YOU_, lexicon.word("state", "hungry"), form="question"))),
    ("my head hurts", "mi fa male la testa", draft(feeling.aches(ME, lexicon.noun("head")))),
    ("her knees hurt", "le fanno male le ginocchia", draft(feeling.aches(HER, lexicon.noun("knee"), plural=True))),
    # numbers and times
    ("I am twenty years old", "ho vent'anni", counting.aged(I_, 20)),
    (
        "Marco is twenty-three years old",
        "Marco ha ventitré anni",
        counting.aged(MARCO, 23),
    ),
    (
        "the train leaves at half past eight",
        "il treno parte alle otto e mezza",
        draft(clause(np("train"), lexicon.verb("leave", "move"), "present", clock("half past eight", 8, 30))),
    ),
    # questions
    (
        "how much does the bread cost",
        "quanto costa il pane",
        wh_question(plain("how much", "quanto"), np("bread"), lexicon.verb("cost"), "present"),
    ),
    (
        "how much do the shoes cost",
        "quanto costano le scarpe",
        wh_question(plain("how much", "quanto"), np("shoe", plural=True), lexicon.verb("cost"), "present"),
    ),
    (
        "when did Anna arrive",
        "quando è arrivata Anna",
        wh_question(plain("when", "quando"), ANNA, lexicon.verb("arrive", "move"), "past"),
    ),
    (
        "what are you cooking",
        "che cosa stai cucinando",
        wh_question(plain("what", "che cosa"), YOU_, do("cook"), "progressive"),
    ),
    (
        "do you speak Italian",
        "parli italiano",
        draft(
            clause(
                YOU_, lexicon.verb("speak"), "present", said(lexicon.word("nationality", "Italian")), form="question"
            )
        ),
    ),
    # places and prepositions
    (
        "the books are in the backpack",
        "i libri sono nello zaino",
        describing.be(np("book", plural=True), with_preposition("in", "in", np("backpack"))),
    ),
    (
        "the cat is under the table",
        "il gatto è sotto il tavolo",
        describing.be(np("cat"), with_preposition("under", "sotto", np("table"))),
    ),
    (
        "the school is near the church",
        "la scuola è vicino alla chiesa",
        describing.be(np("school"), with_preposition("near", "vicino a", np("church"))),
    ),
    (
        "a glass of water",
        "un bicchiere d'acqua",
        draft(counting.measure(np("glass", "a"), lexicon.noun("water"))),
    ),
    (
        "she comes from Italy",
        "viene dall'Italia",
        draft(clause(SHE, COME, "present", with_preposition("from", "da", plain("Italy", "l'Italia")))),
    ),
    # wishes and second clauses
    ("we would like a coffee", "vorremmo un caffè", draft(wanting.wish(WE), np("coffee", "a"))),
    (
        "I know that you are cold",
        "so che hai freddo",
        draft(clause(I_, lexicon.verb("know"), "present", plain("that", "che"), asking.feels(YOU_, "cold"))),
    ),
    (
        "he is crying because he is sad",
        "sta piangendo perché è triste",
        draft(
            clause(HE, lexicon.verb("cry", "action"), "progressive"),
            plain("because", "perché"),
            asking.feels(HE, "sad"),
        ),
    ),
]

GOLDEN = {source: (target, made) for source, target, made in ROWS}
