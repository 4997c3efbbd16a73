"""Rules of the corpus check: name, severity and advice of each."""

from typing import Literal, NamedTuple, get_args

# Columns of scores by which pairs can be selected, higher is better
Selecting = Literal["score", "dual", "contrast", "lexicon", "source_language", "target_language", "similarity"]
SELECTING: tuple[str, ...] = get_args(Selecting)

ERROR, WARNING, NOTE = "error", "warning", "note"
PREVENTING = ("unreadable", "line-counts")  # prevent cleaning and scoring: pairs are missing or misaligned
SEVERITIES = (ERROR, WARNING, NOTE)

DROPPED_BY_CLEANING = frozenset(  # by default
    (
        "encoding empty ratio wrong-language swapped misaligned duplicate leak near-leak identical wrong-script "
        "replacement mojibake"
    ).split()
)
DROPPED_BY_TRAINING = frozenset("empty ratio too-long duplicate".split())


class FindingRule(NamedTuple):
    """A rule that pairs or whole texts can break."""

    name: str  # on the command line
    severity: str  # error (training refuses the text), warning, or note
    title: str  # in a sentence
    advice: str  # meaning and remedy


TEXT_RULES = tuple(
    FindingRule(*row)
    for row in (
        ("unreadable", ERROR, "text that cannot be read", "The rest of this text was not checked."),
        (
            "line-counts",
            ERROR,
            "files of different length",
            "Pairs after a missing line are misaligned; `mt data clean --repair` aligns the two texts of a source.",
        ),
        ("row", ERROR, "rows that cannot be read", "Correct them, or let `mt data clean` drop them."),
        ("no-pairs", ERROR, "nothing to train on or to score", "Each text needs at least one usable pair."),
        (
            "back-translated",
            ERROR,
            "back-translations that would be held out",
            "With data.valid or data.test split off the training text, such sources need `synthetic: true`.",
        ),
        ("byte-order-mark", NOTE, "byte order mark at the start", "Training ignores it; other tools may not."),
        ("crlf", NOTE, "lines that end in CR LF", "Training ignores the CR; other tools may not."),
    )
)

# A pair's bits are in this order, and a dropped pair is counted for the first rule that drops it.
PAIR_RULES = tuple(
    FindingRule(*row)
    for row in (
        (
            "encoding",
            ERROR,
            "lines that are not UTF-8",
            "Convert the file, for example with `iconv -f latin1 -t utf-8` (utf-16 if it begins with 0xff or 0xfe).",
        ),
        ("empty", WARNING, "pairs with an empty side", "There is nothing to learn from them."),
        ("ratio", WARNING, "disproportionate lengths", "Beyond data.max_ratio; mostly not translations of each other."),
        ("too-long", NOTE, "longer than data.max_length", "Counted in tokens, start and end included."),
        ("wrong-language", WARNING, "blocks of lines in another language", "Many in a row, so this is no guess."),
        ("swapped", WARNING, "pairs with their sides swapped", "Each side is in the language of the other."),
        (
            "misaligned",
            WARNING,
            "blocks of lines that are out of step",
            "A line is missing or too many before them, or they belong elsewhere; found by the words of the corpus.",
        ),
        ("duplicate", NOTE, "duplicate pairs", "The first of equal pairs is not counted."),
        (
            "leak",
            WARNING,
            "pairs of the validation or test text",
            "A score on text seen in training is meaningless. In validation text these are pairs of the test text.",
        ),
        (
            "near-leak",
            WARNING,
            "near-copies of validation or test pairs",
            "The same letters on both sides, or nearly the same words: about one of ten may differ.",
        ),
        ("side-leak", NOTE, "one side of a validation or test pair", "The other side differs."),
        ("low-score", NOTE, "low scores", "By the models of `mt data score`, probably no translations."),
        ("identical", WARNING, "source and target are the same", "Untranslated text teaches a model to copy."),
        ("same-words", NOTE, "source and target are the same few words", "Perhaps names; perhaps not translated."),
        ("wrong-script", WARNING, "mostly another script", "Not a script of the language."),
        ("language", WARNING, "another language", "Single lines, judged with their neighbours; only a guess."),
        ("replacement", WARNING, "replacement character U+FFFD", "The original character is lost."),
        ("mojibake", WARNING, "mojibake", "UTF-8 decoded with another encoding, such as `Ã¤` for `ä`."),
        ("nul", WARNING, "NUL characters", "Perhaps the text was UTF-16 or binary."),
        ("control", WARNING, "control characters", "Remains of another format, or of a terminal."),
        ("line-break", WARNING, "line breaks within a sentence", "Other tools split lines at U+2028, U+0085 or CR."),
        ("private-use", WARNING, "private-use characters", "They have a meaning in one font only."),
        ("markup", WARNING, "HTML entities or tags", "Remains of a web page; a model learns to write them."),
        ("mixed-script", WARNING, "words of two scripts", "Lookalike letters, such as a Cyrillic А in a Latin word."),
        ("zero-width", WARNING, "zero-width characters", "Words with and without them are different words."),
        ("soft-hyphen", NOTE, "soft hyphens", "Words with and without them are different words."),
        ("bidi", NOTE, "direction marks", "Not needed in left-to-right text."),
        ("foreign-letters", NOTE, "some letters of another script", "Often names and quotations."),
        ("short", NOTE, "hardly a letter", "A side has at most one letter or digit."),
        ("unusual-ratio", NOTE, "unusual length ratio", "Far from the typical ratio of this corpus."),
        ("numbers", NOTE, "different numbers", "A number on one side is missing on the other."),
        ("punctuation", NOTE, "different final punctuation", "Such as a question mark on one side only."),
        ("many-targets", NOTE, "one source, many targets", "The same source sentence has several translations."),
        ("many-sources", NOTE, "one target, many sources", "The same target sentence has several sources."),
        (
            "near-duplicate",
            NOTE,
            "near-copies of other training pairs",
            "On both sides the same letters, or the same words but for one; the one that stays is not counted.",
        ),
        (
            "template",
            NOTE,
            "pairs that differ in names or rare words only",
            "Families of ten pairs or more; `mt data clean --max-per-template N` keeps N of each.",
        ),
        ("rare-characters", NOTE, "characters without a token", "Encoded as bytes: rare in training, or never seen."),
    )
)

BIT = {rule.name: 1 << index for index, rule in enumerate(PAIR_RULES)}
DROPPABLE = tuple(rule.name for rule in PAIR_RULES if rule.name not in ("encoding", "rare-characters"))
