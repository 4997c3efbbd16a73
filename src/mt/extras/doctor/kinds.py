"""What can be wrong with a corpus: its name, how serious it is, and what to do about it."""

from dataclasses import dataclass

ERROR, WARNING, NOTE = "error", "warning", "note"
SERIOUSNESS = (ERROR, WARNING, NOTE)


@dataclass(frozen=True)
class Kind:
    """One kind of finding.

    Attributes:
        name: what the command line calls it.
        title: what a table calls it.
        seriousness: error (training refuses the text), warning, or note.
        advice: what it means, and what to do.
        dropped: whether `mt data clean` drops such pairs unless it is told otherwise.
        in_training: whether `mt train` leaves such training pairs out by itself.
    """

    name: str
    title: str
    seriousness: str
    advice: str
    dropped: bool = False
    in_training: bool = False


# Of whole texts, not of pairs.
TEXT_KINDS = (
    Kind("unreadable", "text that cannot be read", ERROR, "Nothing after this place was looked at."),
    Kind(
        "line-counts",
        "files of different length",
        ERROR,
        "Line n of one file must be the translation of line n of the other; pairs after the place where a line is "
        "missing are wrong.",
    ),
    Kind("row", "rows that cannot be read", ERROR, "Correct them, or let `mt data clean` leave them out."),
    Kind("no-pairs", "nothing to train on or to score", ERROR, "Training needs at least one usable pair in each text."),
    Kind(
        "back-translated",
        "back-translations that would be held out",
        ERROR,
        "With data.valid or data.test split off the training text, such sources need `synthetic: true`.",
    ),
    Kind(
        "byte-order-mark",
        "byte order mark at the start",
        NOTE,
        "Training ignores it; other tools take it for a part of the first sentence.",
    ),
    Kind("crlf", "lines that end in CR LF", NOTE, "Training ignores the CR; other tools may not."),
)

# Of pairs; a pair's bits are in this order, and a pair that is dropped for several reasons is counted for the first.
PAIR_KINDS = (
    Kind(
        "encoding",
        "lines that are not UTF-8",
        ERROR,
        "Convert the file, for example with `iconv -f latin1 -t utf-8` (or utf-16, if it begins with 0xff or 0xfe).",
        dropped=True,
    ),
    Kind("empty", "pairs with an empty side", WARNING, "They teach nothing.", dropped=True, in_training=True),
    Kind(
        "ratio",
        "lengths in no proportion",
        WARNING,
        "One side is longer by more than data.max_ratio; mostly these are no translations of each other.",
        dropped=True,
        in_training=True,
    ),
    Kind("too-long", "longer than data.max_length", NOTE, "Counted in tokens, start and end included.", False, True),
    Kind(
        "duplicate",
        "pairs that occurred before",
        NOTE,
        "The first of equal pairs is not counted.",
        dropped=True,
        in_training=True,
    ),
    Kind(
        "leak",
        "pairs of the validation or test text",
        WARNING,
        "A score on a text that training has seen says nothing. In a validation text it is those of the test text.",
        dropped=True,
    ),
    Kind(
        "near-leak",
        "almost pairs of the validation or test text",
        WARNING,
        "The same letters on both sides; case, digits, punctuation or spaces differ.",
        dropped=True,
    ),
    Kind(
        "side-leak",
        "a side of the validation or test text",
        NOTE,
        "One side has the same letters as one there, the other differs.",
    ),
    Kind(
        "identical",
        "source and target are the same",
        WARNING,
        "Text that was not translated teaches a model to copy.",
        dropped=True,
    ),
    Kind("same-words", "source and target are the same few words", NOTE, "Perhaps names; perhaps not translated."),
    Kind("wrong-script", "mostly another script", WARNING, "Not the script of the language.", dropped=True),
    Kind(
        "language",
        "another language",
        WARNING,
        "Only long sentences were judged, and only a clear case is counted. See for yourself: it is a guess.",
    ),
    Kind("replacement", "replacement character U+FFFD", WARNING, "What stood there is lost.", dropped=True),
    Kind("mojibake", "UTF-8 read as something else", WARNING, "Such as `Ã¤` for `ä`: decoded wrongly.", dropped=True),
    Kind("nul", "NUL characters", WARNING, "Perhaps the text was UTF-16 or binary."),
    Kind("control", "control characters", WARNING, "Remains of another format, or of a terminal."),
    Kind(
        "line-break",
        "line breaks inside of a sentence",
        WARNING,
        "U+2028, U+0085, CR and their like: training reads on, other tools begin a new line and shift the pairs.",
    ),
    Kind("private-use", "private-use characters", WARNING, "They mean something in one font only."),
    Kind("markup", "HTML entities or tags", WARNING, "Remains of a web page; a model learns to write them."),
    Kind("mixed-script", "words of two scripts", WARNING, "Letters that look alike, such as a Cyrillic А in Latin."),
    Kind("zero-width", "zero-width characters", WARNING, "Words with and without them are different words."),
    Kind("soft-hyphen", "soft hyphens", NOTE, "Words with and without them are different words."),
    Kind("bidi", "direction marks", NOTE, "Not needed in text that runs from left to right."),
    Kind("foreign-letters", "some letters of another script", NOTE, "Often names and quotations."),
    Kind("short", "hardly a letter", NOTE, "A side has at most one letter or digit."),
    Kind("unusual-ratio", "unusual length ratio", NOTE, "Far from the ratio that most pairs of this corpus have."),
    Kind("numbers", "numbers that differ", NOTE, "A number of one side is not on the other."),
    Kind("punctuation", "ends that differ", NOTE, "Such as a question mark on one side only."),
    Kind("many-targets", "one source, many targets", NOTE, "The same source sentence has several translations."),
    Kind("many-sources", "one target, many sources", NOTE, "The same target sentence has several sources."),
    Kind(
        "rare-characters",
        "characters spelt in bytes",
        NOTE,
        "The tokenizer has no piece for them: rare in training, or never seen.",
    ),
)

BIT = {kind.name: 1 << place for place, kind in enumerate(PAIR_KINDS)}
DROPPABLE = tuple(kind.name for kind in PAIR_KINDS if kind.name not in ("encoding", "rare-characters"))


def kinds_of(mask: int) -> list[Kind]:
    """The kinds whose bits are set."""
    return [kind for place, kind in enumerate(PAIR_KINDS) if mask >> place & 1]
