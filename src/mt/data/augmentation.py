"""Augmentation of sentence pairs with variation as users write it: case, typos, punctuation, copied spans.

All functions are pure, given the state of the random generator.
"""

import random
import re

from mt.text.casing import lower_case, title_case, upper_case
from mt.text.languages import BACK_TRANSLATION_TAG, is_spaced
from mt.text.spelling import NEIGHBOURS

Pair = tuple[str, str]  # source and target, as texts or language codes

SPAN_KINDS = ("url", "emoji", "number", "code")

_TYPO_SHARE = 0.15  # of the words of a sentence
_WORD = re.compile(r"\W*[^\W\d_]{4,}\W*")
_MARKS = "[.!?…。！？।؟]"
# Tried once a run of spaces and of marks, for linear time.
_FINAL = re.compile(rf"(?<!\s)\s*(?<!{_MARKS})({_MARKS}+)[\"'»”’)]*\s*$")
# Ranges without unassigned code points and without modifiers.
_EMOJI = (range(0x1F300, 0x1F3FB), range(0x1F400, 0x1F650), range(0x1F680, 0x1F6C6), range(0x1F910, 0x1F93B))
_SYMBOLS = ("---", "***", "===", "...", "|", "#", ">>", "+", "~", "/", "::", "•", "_____")


def add_typos(text: str, rng: random.Random, share: float) -> str:
    """Misspell a share of the words, among those of at least four letters."""
    words = text.split(" ")
    chosen = [i for i, word in enumerate(words) if _WORD.fullmatch(word)]
    number = int(share * len(words) + rng.random())
    for i in rng.sample(chosen, min(number, len(chosen))):
        words[i] = _misspelt(words[i], rng)
    return " ".join(words)


def _misspelt(word: str, rng: random.Random) -> str:
    """Drop, double or mistype one letter of a word, or swap it with the next; the first letter stays."""
    letters = [i for i in range(len(word) - 1) if word[i].isalpha() and word[i + 1].isalpha()][1:]
    if not letters:  # _WORD also matches numerals such as ², which are not letters
        return word
    i = rng.choice(letters)
    before, letter, after = word[:i], word[i], word[i + 1 :]
    kind = rng.randrange(4)
    if kind == 0:
        return before + after
    if kind == 1 and letter != after[0]:
        return before + after[0] + letter + after[1:]
    if kind == 2 and (neighbours := NEIGHBOURS.get(letter.lower())):
        typed = rng.choice(neighbours)
        return before + (typed.upper() if letter.isupper() else typed) + after
    return before + 2 * letter + after


def without_final_punctuation(pair: Pair) -> Pair:
    """Remove the final punctuation of both sides, if both have any."""
    ends = [_FINAL.search(text) for text in pair]
    if not all(ends):
        return pair
    source, target = (text[: end.start()] + text[end.end(1) :] for text, end in zip(pair, ends, strict=True) if end)
    return source, target


def doubled_punctuation(text: str, rng: random.Random) -> str:
    """Repeat the last punctuation mark once or twice."""
    end = _FINAL.search(text)
    return f"{text[: end.end(1)]}{end[1][-1] * rng.randint(1, 2)}{text[end.end(1) :]}" if end else text


def _separator(language: str) -> str:
    return " " if is_spaced(language) else ""


def draw_span(rng: random.Random, kind: str) -> str:
    """Draw a span that is the same in every language; `kind` is one of SPAN_KINDS."""
    if kind == "emoji":
        code_points = rng.choices(_EMOJI, list(map(len, _EMOJI)))[0]
        return chr(rng.choice(code_points)) * rng.choice((1, 1, 1, 2, 3))
    if kind == "number":
        n, d = rng.randrange(10 ** rng.randint(1, 7)), rng.randrange(10, 100)
        date = f"{rng.randint(1900, 2099)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"
        clock = f"{rng.randrange(24)}:{rng.randrange(60):02}"
        return rng.choice((f"{n}", f"{n}", f"{n}.{d}", f"{n}%", f"#{n}", date, clock, f"{d % 10}.{d // 10}.{n % 100}"))
    one, two = _name(rng), _name(rng)
    if kind == "url":
        host = f"{one}.{rng.choice(('com', 'org', 'net', 'de', 'fr', 'io', 'co.uk'))}"
        path = rng.choice(("", "/", f"/{two}", f"/{two}/{rng.randrange(1000)}", f"/{two}?{_name(rng)}={_name(rng)}"))
        hosts = (f"https://{host}", f"https://www.{host}", f"http://{host}", f"www.{host}")
        return rng.choice((*(start + path for start in hosts), f"{two}@{host}"))
    flags = (f"--{one}", f"<{one}>", f"%{one[0]}", f"{{{one}}}", f"@{one}", f"${one}", f"#{one}")
    names = (f"{one}_{two}", f"{one}()", f"/{one}/{two}", f"{one}.{two[:3]}", f"`{one} {two}`")
    return rng.choice((*names, *flags, f"{one.upper()}-{rng.randrange(1000)}"))


def _name(rng: random.Random) -> str:
    return "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9)))


def insert(pair: Pair, span: str, rng: random.Random, languages: Pair) -> Pair:
    """Put a span into both sides: at the start or end, before the last mark, after the first comma or between words."""
    places = ["start", "end", "end", *(["mark"] * 2 if all(map(_FINAL.search, pair)) else [])]
    places += ["comma"] if all(", " in text for text in pair) else []
    place, fraction = rng.choice([*places, "between"]), rng.random()
    source, target = (
        _inserted(text, span, place, fraction, _separator(language))
        for text, language in zip(pair, languages, strict=True)
    )
    return source, target


def _inserted(text: str, span: str, place: str, fraction: float, space: str) -> str:
    words, end = text.split(" ") if space else list(text), _FINAL.search(text)
    cut = {"start": 0, "mark": end.start() if end else 0, "comma": text.find(", ") + 1, "end": len(text)}.get(place)
    if cut is None:
        cut = len(space.join(words[: round(fraction * len(words))]))
    before, after = text[:cut].rstrip(), text[cut:]
    if place != "mark" and after:
        after = space + after.lstrip()
    return f"{before}{space if before else ''}{span}{after}"


def noise_line(rng: random.Random) -> str:
    """Draw a line of symbols and spans, without words of any language."""
    parts = [rng.choice(_SYMBOLS) if rng.random() < 0.3 else draw_span(rng, rng.choice(SPAN_KINDS)) for _ in range(3)]
    return " ".join(parts[: rng.randint(1, 3)])


def augment(kind: str, pair: Pair, following: Pair, rng: random.Random, languages: Pair) -> Pair:
    """Change a pair; `kind` is a key of the configuration's `augmentation` section.

    `following` is the next pair of the corpus, which `merge` appends unless just one of the two is back-translated.
    Casing and spaces depend on the codes of the languages, empty where unknown.
    """
    tag = f"{BACK_TRANSLATION_TAG} "
    if kind == "merge" and pair[0].startswith(tag) != following[0].startswith(tag):
        return pair  # the tag marks a whole source as a translation
    if pair[0].startswith(tag):  # the tag stays in front, unchanged
        untagged = following[0].removeprefix(tag), following[1]
        source, target = augment(kind, (pair[0].removeprefix(tag), pair[1]), untagged, rng, languages)
        return tag + source, target
    source, target = pair
    match kind:
        case "upper_case" | "title_case":
            change = upper_case if kind == "upper_case" else title_case
            return change(source, languages[0]), change(target, languages[1])
        case "lower_case":
            return lower_case(source, languages[0]), target
        case "typos":
            return add_typos(source, rng, _TYPO_SHARE), target
        case "punctuation":
            return without_final_punctuation(pair) if rng.random() < 0.5 else (doubled_punctuation(source, rng), target)
        case "merge":
            sides = zip(pair, following, languages, strict=True)
            source, target = (f"{text}{_separator(language)}{next_text}" for text, next_text, language in sides)
            return source, target
        case "copy_spans":
            return insert(pair, draw_span(rng, rng.choice(SPAN_KINDS)), rng, languages)
    line = noise_line(rng)
    return line, line
