"""Terms in source text, and text that stays as it is."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mt.data.tokenizer import normalized
from mt.text.casing import lower_case, starts_sentence, title_case, upper_case
from mt.text.languages import is_spaced
from mt.text.lines import with_plain_spaces
from mt.text.words import EMAIL, GLUED, ID_CHAR, IN_WORD, UNSPACED, URL

_EMOJI = r"\U0001F000-\U0001FAFF\u2300-\u23FF\u2600-\u27BF\u2B00-\u2BFF"
_IN_EMOJI = rf"{_EMOJI}\uFE0F\u200D\u20E3\U000E0020-\U000E007F"  # with selectors, joiners, keys and flags' letters
_QUOTED = r"[^`']*[^\s`']'+s?(?:[\s.,;:!?)]|$)"  # behind ` as an opening quotation mark, as in `dog' or ``dog''
_W = ID_CHAR
SPANS = re.compile(
    "|".join(
        [
            URL,
            EMAIL,
            rf"(?:[{_EMOJI}]|\S\uFE0F|[0-9#*]\u20E3)[{_IN_EMOJI}]*",
            rf"`(?!{_QUOTED})[^`\s][^`]*`",
            rf"\{{\w*\}}|</?\w+/?>|%(?<!{_W}%)[a-z](?!{_W})|[@#$](?<!{_W}.)(?<![@#$].)[A-Za-z_]{_W}*",
            rf"--(?<![^\s{GLUED}]--)[a-z](?:{_W}|-)+(?![^\s.,;:!?)={GLUED}])|[A-Z](?<!{_W}.)[A-Z]+-\d+(?!{_W})",
            rf"/(?<![^\W{UNSPACED}]/)(?<!//){_W}+(?:/(?:{_W}|\.)+)+|(?<!{_W}){_W}+(?:\(\)|_{_W}+)",
            r"(?<![\w.,:/-])(?:\d{4}-\d{2}-\d{2}|#?\d+(?:[.,:]\d+)+%?|#?\d+%|#\d+|\d{2,})(?![\w%]|[.,:/-]\d)",
        ]
    )
)
"""Text that is the same in all languages: URLs, e-mail addresses, emoji, code, and all but small numbers."""
_NO_LETTER = re.compile(r"[\W\d_]")
_WITHIN_WORD = re.compile(f"[{IN_WORD}]{{2}}")
_GLUED_EDGE = re.compile(f"[{GLUED}][^{GLUED}]|[^{GLUED}][{GLUED}]")  # as of a Korean particle behind an address


class Term(NamedTuple):
    """An occurrence of a term in source text."""

    start: int  # of its characters in the text
    end: int
    forms: tuple[str, ...]  # of its translation that are accepted, the preferred one first
    sentence_case: bool = True  # whether a form that begins a sentence is capitalised, unless it is like iPhone
    is_spaced: bool = True  # forms must be whole words: the target language writes spaces, and the term is a whole word
    source: str = ""  # the text in its usual case: as the glossary has it, or as it is
    is_requested: bool = True  # whether a glossary or a `keep` pattern covers some of it, not only `SPANS`
    language: str = ""  # the target language, whose letter case `form` follows

    def form(self, begins: bool) -> str:
        """Return the preferred form, as written at the beginning of a sentence or elsewhere."""
        form = self.forms[0]
        has_own_case = any(map(str.isupper, _NO_LETTER.split(form, 1)[0]))
        return _capitalized(form, self.language) if begins and self.sentence_case and not has_own_case else form

    def is_in(self, text: str) -> bool:
        """Return True if a translation contains one of the forms."""
        if any(any(self._matches(text, form)) for form in self.forms):
            return True
        return self.sentence_case and any(map(starts_sentence, self._matches(text, self.form(begins=True))))

    def _matches(self, text: str, form: str) -> Iterator[re.Match[str]]:
        for match in re.finditer(f"(?={re.escape(form)})", text):  # overlapping ones, too
            if not self.is_spaced or is_whole_word(text, match.start(), match.start() + len(form)):
                yield match


def _capitalized(text: str, language: str) -> str:
    return title_case(text[:1], language) + text[1:]


def is_whole_word(text: str, start: int, end: int) -> bool:
    """Return True if no word continues over the edges of a span."""
    return not (_joined(text[start - 1 : start + 1] if start else "") or _joined(text[end - 1 : end + 1]))


def _joined(edge: str) -> bool:
    return _WITHIN_WORD.fullmatch(edge) is not None and not _GLUED_EDGE.fullmatch(edge)


class Terms:
    """The terms of one direction.

    Args:
        entries: source and target; a target that is empty or the source keeps the text as it is.
        keep: patterns of text to keep as it is.
        languages: of the source (empty if unknown) and the target.
    """

    def __init__(
        self, entries: dict[str, str], keep: Sequence[re.Pattern[str]] = (), languages: tuple[str, str] = ("", "")
    ) -> None:
        self._keep = keep
        self._source_lang, self._target_lang = languages
        self._spaced, self._into_spaced = map(is_spaced, languages)
        # A word ends where a Korean particle follows it without a space.
        self._word = re.compile(rf"{_W}+|(?:(?!{_W})\w)+|\S" if self._spaced else r"\S")
        plain = with_plain_spaces if self._spaced else str  # nothing is left of a term of invisible characters
        self._entries = {key: entries[term] for term in entries if (key := plain(term).strip())}
        self._lengths: dict[str, tuple[int, ...]] = {}  # of the terms with a first word, longest first
        self._sources: dict[tuple[str, str], str] = {}  # of the terms by first word and a spelling found in text
        for source in sorted(self._entries, key=lambda source: -len(source)):
            lengths = self._lengths.get(first := self._first_word(source), ())
            if len(source) not in lengths:
                self._lengths[first] = (*lengths, len(source))
            for spelt in (_capitalized(source, self._source_lang), upper_case(source, self._source_lang)):
                if len(spelt) == len(source):
                    self._sources.setdefault((first, spelt), source)
            self._sources[first, source] = source

    def find(self, text: str, spans: bool = False) -> list[Term]:
        """Return the terms of a text from left to right, also `SPANS` if asked; of overlapping ones the longest."""
        matches = [match for pattern in self._keep for match in pattern.finditer(text)]
        # White space around a match belongs to the words beside it.
        terms = [self._kept(m.end() - len(m[0].lstrip()), (m[0].strip(),)) for m in matches]
        # A match inside a word, as the digits of "B52", may be inside one again.
        terms = [t._replace(is_spaced=t.is_spaced and is_whole_word(text, t.start, t.end)) for t in terms]
        terms += self._occurrences(text) if self._entries else ()
        if spans:
            requested = {place for term in terms for place in range(term.start, term.end)}
            kept = [self._kept(m.start(), _spellings(m[0])) for m in SPANS.finditer(text)]
            terms += [s._replace(is_requested=not requested.isdisjoint(range(s.start, s.end))) for s in kept]
        chosen, covered = [], set[int]()
        for term in sorted(terms, key=lambda term: term.start - term.end):
            # The terms chosen before are as long or longer, so one that overlaps covers an edge.
            if term.end > term.start and covered.isdisjoint((term.start, term.end - 1)):
                chosen.append(term)
                covered.update(range(term.start, term.end))
        return sorted(chosen)

    def spans(self, text: str) -> list[tuple[int, int, str]]:
        """Return start, end and usual case of the terms of a text, `SPANS` among them."""
        return [(term.start, term.end, term.source) for term in self.find(text, spans=True)]

    def share(self, lines: Sequence[str], translations: Sequence[str]) -> float | None:
        """Return the percentage of lines with terms whose translations have all of them; None if no line has terms."""
        found = [(self.find(normalized(line)), text) for line, text in zip(lines, translations, strict=True)]
        has_all = [all(term.is_in(text) for term in terms) for terms, text in found if terms]
        return 100 * sum(has_all) / len(has_all) if has_all else None

    def _kept(self, start: int, forms: tuple[str, ...]) -> Term:
        return Term(start, start + len(forms[0]), forms, False, self._into_spaced, forms[0])

    def _occurrences(self, text: str) -> Iterator[Term]:
        language = self._source_lang
        for word in self._word.finditer(text):
            start, first = word.start(), lower_case(word[0], language)
            for length in self._lengths.get(first, ()):
                spelt = text[start : start + length]
                source = self._sources.get((first, spelt))
                if source is not None and (not self._spaced or is_whole_word(text, start, start + length)):
                    yield self._term(start, spelt, source, self._entries[source])
                    break

    def _first_word(self, source: str) -> str:
        first = self._word.match(source)
        assert first is not None
        return lower_case(first[0], self._source_lang)

    def _term(self, start: int, spelt: str, source: str, target: str) -> Term:
        if target in ("", source):
            return self._kept(start, (spelt,))
        forms: tuple[str, ...] = (target,)
        if spelt != source:
            upper = len(spelt) > 1 and spelt == upper_case(source, self._source_lang)
            changed = (upper_case if upper else _capitalized)(target, self._target_lang)
            forms = (changed, target) if upper else (target, changed)
        return Term(start, start + len(spelt), forms, True, self._into_spaced, source, language=self._target_lang)


def _spellings(text: str) -> tuple[str, ...]:
    """Return how languages write a number, such as 1,000.5% or 10:30, the given spelling first."""
    if re.fullmatch(r"#?\d[\d.,:]*%?", text) is None:
        return (text,)
    plain = [text, text.translate({ord("."): ",", ord(","): "."})]
    if re.fullmatch(r"#?\d{1,3}(?:,\d{3})+(?:\.\d+)?%?", text):  # thousands, not 12,5
        plain += [text.replace(",", space) for space in ("", " ", "\xa0", "\u202f")]
    plain += [text.replace(":", mark) for mark in (".", "h", " h ")]
    spaced = [f"{form[:-1]}{space}%" for form in plain if form.endswith("%") for space in (" ", "\xa0", "\u202f")]
    return tuple(dict.fromkeys([*plain, *spaced]))
