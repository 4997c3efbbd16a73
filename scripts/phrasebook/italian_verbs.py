"""Italian verbs: conjugation of regular and irregular verbs, participles, and pronouns before and after the verb.

A person is counted from 0 to 5: io, tu, lui/lei, noi, voi, loro. The irregular tables hold only what cannot
be derived.
"""

from typing import Literal

from phrasebook.italian import agree, join, starts_with_vowel

Tense = Literal["present", "past", "imperfect", "future", "progressive", "conditional"]

REFLEXIVE = ("mi", "ti", "si", "ci", "vi", "si")
_ELIDING = frozenset({"lo", "la"})
_AGREEING = {"lo": ("m", False), "la": ("f", False), "li": ("m", True), "le": ("f", True)}

_PRESENT_ENDINGS = {
    "are": ("o", "i", "a", "iamo", "ate", "ano"),
    "ere": ("o", "i", "e", "iamo", "ete", "ono"),
    "ire": ("o", "i", "e", "iamo", "ite", "ono"),
}
_ISC_ENDINGS = ("isco", "isci", "isce", "iamo", "ite", "iscono")
_ISC_VERBS = frozenset({"capire", "finire", "pulire"})
_IRREGULAR_PRESENT = {
    infinitive: tuple(forms.split())
    for infinitive, forms in {
        "essere": "sono sei è siamo siete sono",
        "avere": "ho hai ha abbiamo avete hanno",
        "andare": "vado vai va andiamo andate vanno",
        "venire": "vengo vieni viene veniamo venite vengono",
        "fare": "faccio fai fa facciamo fate fanno",
        "dare": "do dai dà diamo date danno",
        "stare": "sto stai sta stiamo state stanno",
        "dire": "dico dici dice diciamo dite dicono",
        "bere": "bevo bevi beve beviamo bevete bevono",
        "potere": "posso puoi può possiamo potete possono",
        "dovere": "devo devi deve dobbiamo dovete devono",
        "volere": "voglio vuoi vuole vogliamo volete vogliono",
        "sapere": "so sai sa sappiamo sapete sanno",
        "uscire": "esco esci esce usciamo uscite escono",
        "scegliere": "scelgo scegli sceglie scegliamo scegliete scelgono",
        "piacere": "piaccio piaci piace piacciamo piacete piacciono",
    }.items()
}

_FUTURE_ENDINGS = ("ò", "ai", "à", "emo", "ete", "anno")
_CONDITIONAL_ENDINGS = ("ei", "esti", "ebbe", "emmo", "este", "ebbero")
_IRREGULAR_FUTURE_STEMS = {
    "essere": "sar",
    "avere": "avr",
    "andare": "andr",
    "venire": "verr",
    "fare": "far",
    "dare": "dar",
    "stare": "star",
    "bere": "berr",
    "potere": "potr",
    "dovere": "dovr",
    "volere": "vorr",
    "sapere": "sapr",
    "vedere": "vedr",
}

_IMPERFECT_ENDINGS = ("vo", "vi", "va", "vamo", "vate", "vano")
_IMPERFECT_OF_ESSERE = ("ero", "eri", "era", "eravamo", "eravate", "erano")
# Verbs that keep a longer, older stem outside the infinitive.
_LONG_STEMS = {"fare": "face", "dire": "dice", "bere": "beve"}

_IRREGULAR_PARTICIPLES = {
    "essere": "stato",
    "venire": "venuto",
    "fare": "fatto",
    "dire": "detto",
    "bere": "bevuto",
    "vedere": "visto",
    "perdere": "perso",
    "aprire": "aperto",
    "offrire": "offerto",
    "chiudere": "chiuso",
    "leggere": "letto",
    "scrivere": "scritto",
    "prendere": "preso",
    "rompere": "rotto",
    "scegliere": "scelto",
    "mettere": "messo",
    "correre": "corso",
    "piangere": "pianto",
    "ridere": "riso",
    "sorridere": "sorriso",
    "conoscere": "conosciuto",
    "piacere": "piaciuto",
}
_IRREGULAR_IMPERATIVES = {
    "andare": "vai",
    "dare": "da'",
    "fare": "fa'",
    "stare": "sta'",
    "dire": "di'",
}


def is_reflexive(infinitive: str) -> bool:
    """Return whether the infinitive is that of a reflexive verb, as in "alzarsi"."""
    return infinitive.endswith("rsi")


def plain(infinitive: str) -> str:
    """Return the infinitive without its reflexive pronoun: "alzarsi" gives "alzare"."""
    return infinitive[:-2] + "e" if is_reflexive(infinitive) else infinitive


def conjugate(infinitive: str, person: int, tense: Tense) -> str:
    """Return the finite verb of a simple tense, without pronouns; `verb_group` builds compound tenses."""
    verb = plain(infinitive)
    if tense == "present":
        return _present(verb, person)
    if tense == "imperfect":
        return _imperfect(verb, person)
    if tense == "future":
        return _future_stem(verb) + _FUTURE_ENDINGS[person]
    if tense == "conditional":
        return _future_stem(verb) + _CONDITIONAL_ENDINGS[person]
    raise ValueError(f"{tense} is not a simple tense")


def _present(verb: str, person: int) -> str:
    if verb in _IRREGULAR_PRESENT:
        return _IRREGULAR_PRESENT[verb][person]
    stem = verb[:-3]
    ending = _ISC_ENDINGS[person] if verb in _ISC_VERBS else _PRESENT_ENDINGS[verb[-3:]][person]
    return _attach(stem, ending) if verb.endswith("are") else stem + ending


def _attach(stem: str, ending: str) -> str:
    """Join stem and ending of an -are verb so that the sound of c, g and i is kept: "cerchi", "mangi"."""
    if stem[-1] in "cg" and ending[0] in "ie":
        return stem + "h" + ending
    if stem[-1] == "i" and ending[0] == "i":
        return stem + ending[1:]
    return stem + ending


def _imperfect(verb: str, person: int) -> str:
    if verb == "essere":
        return _IMPERFECT_OF_ESSERE[person]
    return _LONG_STEMS.get(verb, verb[:-2]) + _IMPERFECT_ENDINGS[person]


def _future_stem(verb: str) -> str:
    if verb in _IRREGULAR_FUTURE_STEMS:
        return _IRREGULAR_FUTURE_STEMS[verb]
    if not verb.endswith("are"):
        return verb[:-1]
    stem = verb[:-3]
    # "mangiare" and "lasciare" need no i before the e that follows: "mangerò".
    if stem.endswith(("ci", "gi")):
        return stem[:-1] + "er"
    return _attach(stem, "er")


def participle(infinitive: str) -> str:
    """Return the past participle, masculine singular: "mangiato", "visto", "capito"."""
    verb = plain(infinitive)
    if verb in _IRREGULAR_PARTICIPLES:
        return _IRREGULAR_PARTICIPLES[verb]
    return verb[:-3] + {"are": "ato", "ere": "uto", "ire": "ito"}[verb[-3:]]


def gerund(infinitive: str) -> str:
    """Return the gerund, which makes the progressive with "stare": "mangiando", "bevendo"."""
    verb = plain(infinitive)
    if verb in _LONG_STEMS:
        return _LONG_STEMS[verb] + "ndo"
    return verb[:-3] + ("ando" if verb.endswith("are") else "endo")


def imperative(infinitive: str) -> str:
    """Return the order to one friend: "mangia", "apri", "finisci"; a negative order has "non" and the infinitive."""
    verb = plain(infinitive)
    if verb in _IRREGULAR_IMPERATIVES:
        return _IRREGULAR_IMPERATIVES[verb]
    return verb[:-2] if verb.endswith("are") else _present(verb, 1)


def with_enclitic(verb: str, clitic: str) -> str:
    """Attach a pronoun to an infinitive or an imperative: "vederti", "aiutami", "dammi"."""
    if verb.endswith("'"):
        # "da'" + "mi" is "dammi"; gli is the one pronoun that does not double.
        return verb[:-1] + ("" if clitic == "gli" else clitic[0]) + clitic
    return (verb[:-1] if verb.endswith("re") else verb) + clitic


def verb_group(
    infinitive: str,
    person: int,
    tense: Tense,
    *,
    auxiliary: str = "avere",
    gender: str = "m",
    clitic: str = "",
    dative: bool = False,
    negative: bool = False,
    adverb: str = "",
) -> str:
    """Return the verb with all that stands around it: "non l'ho mai vista", "si sono alzati", "sto mangiando".

    Args:
        infinitive: a reflexive one brings its own pronoun and the auxiliary essere.
        person: 0 to 5.
        tense: "past" is the passato prossimo.
        auxiliary: "avere" or "essere", for the past.
        gender: of the subject, for the participle with essere.
        clitic: an unstressed pronoun before the verb; "lo" and "la" elide before the forms of avere.
        dative: the clitic says to whom ("le ho scritto"), so the participle does not agree with it.
        negative: puts "non" in front.
        adverb: a short adverb (sempre, mai, già) that follows the finite verb.
    """
    if is_reflexive(infinitive):
        clitic, auxiliary = REFLEXIVE[person], "essere"
    if tense == "past":
        finite = conjugate(auxiliary, person, "present")
        rest = _agreed_participle(infinitive, person, auxiliary, gender, "" if dative else clitic)
        if clitic in _ELIDING and starts_with_vowel(finite):
            clitic = "l'"
    elif tense == "progressive":
        finite, rest = conjugate("stare", person, "present"), gerund(infinitive)
    else:
        finite, rest = conjugate(infinitive, person, tense), ""
    return join("non" if negative else "", clitic, finite, adverb, rest)


def _agreed_participle(infinitive: str, person: int, auxiliary: str, gender: str, clitic: str) -> str:
    """Return the participle: with essere it follows the subject, with avere only a preceding lo, la, li, le."""
    if auxiliary == "essere":
        return agree(participle(infinitive), gender, plural=person >= 3)
    object_gender, plural = _AGREEING.get(clitic, ("m", False))
    return agree(participle(infinitive), object_gender, plural)
