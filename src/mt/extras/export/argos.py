"""A package for Argos Translate: a zip of a CTranslate2 model, a SentencePiece model and a sentence splitter.

Argos Translate has a search of its own, which no package can change; it computes in the fastest number format of the
machine, which is 8 bits on a CPU, whatever the weights are; and it writes `_` as a space.
"""

import shutil
import zipfile
from pathlib import Path

from mt.bundle.to_ctranslate2 import write_converted
from mt.data.eval_texts import EvalText
from mt.decoding.ctranslate2_engine import cpu_cores
from mt.decoding.engine import SearchOptions
from mt.decoding.settings import TranslationSettings
from mt.errors import InputError
from mt.extras.export.loss import Yardstick
from mt.extras.export.sentence_ends import sentence_ends_model
from mt.extras.export.sentencepiece import differences, sentencepiece_model
from mt.extras.export.subject import Subject
from mt.storage import atomic
from mt.text.languages import language_name

VERSION = "1.0"
_ARGOS_VERSION = "1.11"  # the first that reads sentence splitters of this kind
# What Argos Translate asks CTranslate2 for.
_BEAM_SIZE, _LENGTH_PENALTY, _MAX_LENGTH = 4, 0.2, 256
# CTranslate2 cuts a source there, and fails where positions end before.
_POSITIONS = 1024 + 2


def package_name(subject: Subject) -> str:
    """translate-en_de-1_0, of the folder in the zip and the zip itself."""
    [target] = subject.config.data.target_lang
    return f"translate-{subject.config.data.source_lang}_{target}-{VERSION.replace('.', '_')}"


def write_argos(
    subject: Subject,
    folder: Path,
    card: str,
    number_format: str,
    yardstick: Yardstick | None,
) -> str:
    """Writes the package, translates with its content, and compares.

    Args:
        subject: the model.
        folder: being written.
        card: the README; how to install is added.
        number_format: of the weights.
        yardstick: None measures nothing.

    Returns:
        what was measured.

    Raises:
        InputError: it loses more than it may, or is asked with a tag.
    """
    if subject.tags:
        raise InputError(
            f"{subject.folder.root}: this model is asked with <2{next(iter(subject.tags))}> before a text, and a "
            "package for Argos Translate cannot do that",
            "train it with a tokenizer of its own (training.init_tokenizer: false)",
        )
    name = package_name(subject)
    content = folder / name
    positions = max(_POSITIONS, TranslationSettings.of(subject.config).max_positions)
    write_converted(subject.model, subject.config, subject.tokenizers, content / "model", number_format, positions)
    pieces = sentencepiece_model(subject.tokenizers)
    atomic.write_bytes(content / "sentencepiece.model", pieces)
    atomic.write_bytes(content / "minisbd" / "sentence_ends.onnx", sentence_ends_model())
    atomic.write_json(content / "metadata.json", _metadata(subject))
    atomic.write_text(content / "README.md", card)
    atomic.write_text(folder / "README.md", card + _usage(subject, name))
    said = [_pieces_said(subject, pieces)]
    if yardstick is not None:
        said.append(_measured(subject, content, number_format, yardstick))
    with zipfile.ZipFile(folder / f"{name}.argosmodel", "w") as package:
        for path in sorted(path for path in content.rglob("*") if path.is_file()):
            package.write(path, path.relative_to(folder))
    shutil.rmtree(content)
    return "\n".join(said)


def _metadata(subject: Subject) -> dict[str, object]:
    source, [target] = subject.config.data.source_lang, subject.config.data.target_lang
    return {
        "package_version": VERSION,
        "argos_version": _ARGOS_VERSION,
        "from_code": source,
        "from_name": language_name(source),
        "to_code": target,
        "to_name": language_name(target),
        "links": [],
    }


def _pieces_said(subject: Subject, pieces: bytes) -> str:
    sources, targets = subject.sources, subject.references
    if not sources:
        return ""
    off = differences(pieces, subject.tokenizers, sources, targets)
    return f"SentencePiece treats {off:,} of {len(sources) + len(targets):,} lines otherwise than the model's tokenizer"


def _measured(subject: Subject, content: Path, number_format: str, yardstick: Yardstick) -> str:
    """Translates a text as Argos Translate does, but for its sentence splitter: a line is a sentence."""
    import ctranslate2
    from sentencepiece import SentencePieceProcessor

    pieces = SentencePieceProcessor(model_file=str(content / "sentencepiece.model"))
    translator = ctranslate2.Translator(
        str(content / "model"),
        inter_threads=cpu_cores(),
        intra_threads=1,
        compute_type="auto",
    )

    def translate(text: EvalText) -> list[str]:
        found = translator.translate_batch(
            pieces.encode([source.strip() for source in text.sources], out_type=str),
            replace_unknowns=True,
            max_batch_size=4096,
            batch_type="tokens",
            beam_size=_BEAM_SIZE,
            length_penalty=_LENGTH_PENALTY,
        )
        return [pieces.decode_pieces(answer.hypotheses[0]) for answer in found]

    search = SearchOptions(beam_size=_BEAM_SIZE, length_penalty=_LENGTH_PENALTY, max_length=_MAX_LENGTH, scores=False)
    return yardstick.measure(f"Argos Translate, {number_format}", search, translate)


def _usage(subject: Subject, name: str) -> str:
    source, [target] = subject.config.data.source_lang, subject.config.data.target_lang
    return f'''
## Installing

With `pip install argostranslate` ({_ARGOS_VERSION} or later), in this folder:

    python -c "from argostranslate import package; package.install_from_path('{name}.argosmodel')"
    argos-translate --from-lang {source} --to-lang {target} "{subject.example}"

Nothing is fetched from the network: sentences are parted by a rule that lies in the package (`minisbd/`).
Argos Translate searches with a beam of {_BEAM_SIZE} and a length penalty of {_LENGTH_PENALTY}. It computes in 8 bits
on a CPU unless `ARGOS_COMPUTE_TYPE=float32` is set, and writes `_` as a space.
'''
