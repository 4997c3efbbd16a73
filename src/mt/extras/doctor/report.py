"""A diagnosis in words, and as JSON."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from mt.console import harmless, table
from mt.extras.doctor.diagnosis import Diagnosis, Finding
from mt.extras.doctor.kinds import SERIOUSNESS

_SPLITS = ("train", "valid", "test")
FORMAT = 1  # of the JSON document; it changes when something in it changes its meaning


def text_report(diagnosis: Diagnosis) -> str:
    """Tables, then examples."""
    parts = [table(["text", "pairs"], [*pair_rows(diagnosis)])]
    if diagnosis.vocabulary is not None:
        header = (f"tokenizer {diagnosis.vocabulary.name}", *VOCABULARY_HEADER[1:])
        parts.append(table(header, vocabulary_rows(diagnosis)))
    if diagnosis.findings:
        parts.append(table(FINDINGS_HEADER, [finding_row(finding) for finding in diagnosis.findings]))
        parts += ["\n".join(_details(diagnosis, finding)) for finding in diagnosis.findings]
    parts.append(summary(diagnosis))
    return harmless("\n\n".join(parts))


def pair_rows(diagnosis: Diagnosis) -> Iterator[tuple[str, str]]:
    """The texts and how many pairs they have."""
    for survey in reversed(diagnosis.surveys):
        text = survey.text
        yield f"{text.split}: {' and '.join(dict.fromkeys(text.files))}", f"{survey.pairs:,}"


FINDINGS_HEADER = ("finding", "seriousness", "train", "share", "valid", "test")


def finding_row(finding: Finding) -> list[str]:
    """How often it is, and what share of the training pairs that were looked at."""
    train, judged = finding.counts.get("train", 0), finding.judged.get("train", 0)
    share = f"{100 * train / judged:.2f} %" if judged else "-"
    counts = [f"{finding.counts.get(split, 0):,}" for split in _SPLITS]
    return [finding.kind.name, finding.kind.seriousness, counts[0], share, *counts[1:]]


VOCABULARY_HEADER = ("tokenizer", "sentences", "pieces a word", "characters a piece", "spelt in bytes")


def vocabulary_rows(diagnosis: Diagnosis) -> list[list[str]]:
    """What the tokenizers make of each side."""
    if diagnosis.vocabulary is None:
        return []
    return [
        [
            f"{usage.side} {usage.language}",
            f"{usage.sentences:,}",
            f"{usage.pieces / usage.words:.2f}" if usage.words else "-",
            f"{usage.characters / max(usage.pieces, 1):.2f}",
            f"{100 * usage.spelt / max(usage.pieces, 1):.3f} %",
        ]
        for usage in diagnosis.vocabulary.usages.values()
    ]


def explanation(diagnosis: Diagnosis, finding: Finding) -> str:
    """What a finding means, and what becomes of such pairs."""
    said = [finding.kind.advice]
    if finding.kind.in_training and (finding.kind.name != "duplicate" or diagnosis.config.data.drop_duplicates):
        said.append("`mt train` leaves such training pairs out by itself.")
    elif finding.kind.dropped:
        said.append("`mt data clean` drops such training pairs.")
    pairs = diagnosis.pairs
    if any(finding.judged.get(split, pairs[split]) < pairs[split] for split in _SPLITS) and finding.judged:
        looked = ", ".join(f"{number:,} of {split}" for split, number in finding.judged.items() if number)
        said.append(f"Pairs looked at: {looked}.")
    if finding.kind.name == "rare-characters" and diagnosis.vocabulary is not None:
        said.append(f"Most frequent (sentences): {diagnosis.vocabulary.rarest()}.")
    return " ".join(said)


def _details(diagnosis: Diagnosis, finding: Finding) -> Iterator[str]:
    yield f"{finding.kind.name} ({finding.kind.seriousness}): {finding.kind.title}. {explanation(diagnosis, finding)}"
    for example in finding.examples:
        *places, note = [f"{place.file}:{place.line}: {place.text}" for place in example.places] + [example.note]
        if not places:
            yield f"  {note}"
            continue
        yield f"  {places[0]}{f'  [{note}]' if note else ''}"
        yield from (f"    {place}" for place in places[1:])


def summary(diagnosis: Diagnosis) -> str:
    """The last line: whether a training would take the corpus."""
    counts = {
        seriousness: sum(finding.kind.seriousness == seriousness for finding in diagnosis.findings)
        for seriousness in SERIOUSNESS
    }
    said = ", ".join(f"{number} {name}{'' if number == 1 else 's'}" for name, number in counts.items())
    return f"{said}: a training {'would refuse this corpus' if diagnosis.refused else 'would take this corpus'}"


def as_json(diagnosis: Diagnosis) -> dict[str, Any]:
    """The whole of it for programs."""
    vocabulary = diagnosis.vocabulary
    return {
        "format": FORMAT,
        "name": diagnosis.config.name,
        "refused": diagnosis.refused,
        "pairs": diagnosis.pairs,
        "texts": [
            {
                "split": survey.text.split,
                "files": list(dict.fromkeys(survey.text.files)),
                "target_lang": survey.text.target_lang,
                "pairs": survey.pairs,
            }
            for survey in reversed(diagnosis.surveys)
        ],
        "findings": [
            {
                "name": finding.kind.name,
                "title": finding.kind.title,
                "seriousness": finding.kind.seriousness,
                "counts": {split: finding.counts.get(split, 0) for split in _SPLITS},
                "judged": finding.judged,
                "examples": [asdict(example) for example in finding.examples],
            }
            for finding in diagnosis.findings
        ],
        "tokenizer": vocabulary
        and {
            "name": vocabulary.name,
            "sides": [asdict(usage) for usage in vocabulary.usages.values()],
            "rare_characters": dict(vocabulary.rare.most_common(100)),
        },
    }
