"""Export to Argos Translate: a zip of a CTranslate2 model, a SentencePiece model and a sentence splitter.

Argos Translate has fixed search options, computes in the fastest number format of the machine whatever the weights are
(8 bits on a CPU), and replaces `_` by a space.
"""

import shutil
import zipfile
from pathlib import Path

from mt.bundle.to_ctranslate2 import write_converted
from mt.data.eval_texts import EvalText
from mt.decoding.engine import SearchOptions
from mt.decoding.settings import TranslationSettings
from mt.errors import InputError
from mt.extras.export.common import ExportJob
from mt.extras.export.equivalence import compare_bleu
from mt.extras.export.sentence_ends import sentence_ends_model
from mt.extras.export.sentencepiece import count_differences, sentencepiece_model
from mt.storage import atomic
from mt.system.cpus import cpu_cores
from mt.text.languages import language_name

VERSION = "1.0"
_ARGOS_VERSION = "1.11"  # the first that reads MiniSBD sentence splitters
# The options that Argos Translate passes to CTranslate2.
_BEAM_SIZE, _LENGTH_PENALTY, _MAX_LENGTH = 4, 0.2, 256
# CTranslate2 truncates a source to 1024 tokens, and fails if the model has fewer positions.
_POSITIONS = 1024 + 2


def write_argos(job: ExportJob, folder: Path, card: str) -> str:
    """Write the package and its README, which begins with `card`; compare translations, and return the comparison.

    Raises:
        InputError: it loses more BLEU than allowed, or needs a language tag.
    """
    if job.tags:
        raise InputError(
            f"{job.folder.root}: this model needs the tag <2{next(iter(job.tags))}> before each text, which a "
            "package for Argos Translate cannot add",
            "train it with a tokenizer of its own (training.init_tokenizer: false)",
        )
    [source], [target] = job.config.data.source_lang, job.config.data.target_lang
    name = f"translate-{source}_{target}-{VERSION.replace('.', '_')}"  # of the zip and of the folder in it
    content = folder / name
    positions = max(_POSITIONS, TranslationSettings.of(job.config).max_positions)
    write_converted(job.model, job.config, job.tokenizers, content / "model", job.number_format, positions)
    pieces = sentencepiece_model(job.tokenizers)
    atomic.write_bytes(content / "sentencepiece.model", pieces)
    atomic.write_bytes(content / "minisbd" / "sentence_ends.onnx", sentence_ends_model())
    atomic.write_json(content / "metadata.json", _metadata(source, target))
    atomic.write_text(content / "README.md", card)
    atomic.write_text(folder / "README.md", card + _usage(job, name))
    lines = []
    if job.sources:
        different, number = count_differences(pieces, job.tokenizers, job.sources, job.references), 2 * len(job.sources)
        lines.append(f"SentencePiece differs from the model's tokenizer on {different:,} of {number:,} lines")
        lines.append(_compare_bleu(job, content))
    with zipfile.ZipFile(folder / f"{name}.argosmodel", "w") as package:
        for path in sorted(path for path in content.rglob("*") if path.is_file()):
            package.write(path, path.relative_to(folder))
    shutil.rmtree(content)
    return "\n".join(lines)


def _metadata(source: str, target: str) -> dict[str, object]:
    return {
        "package_version": VERSION,
        "argos_version": _ARGOS_VERSION,
        "from_code": source,
        "from_name": language_name(source),
        "to_code": target,
        "to_name": language_name(target),
        "links": [],
    }


def _compare_bleu(job: ExportJob, content: Path) -> str:
    """Compare BLEU, translating as Argos Translate does, but with each line as one sentence."""
    import ctranslate2
    from sentencepiece import SentencePieceProcessor

    pieces = SentencePieceProcessor(model_file=str(content / "sentencepiece.model"))
    translator = ctranslate2.Translator(
        str(content / "model"), inter_threads=cpu_cores(), intra_threads=1, compute_type="auto"
    )

    def translate(text: EvalText) -> list[str]:
        results = translator.translate_batch(
            pieces.encode([source.strip() for source in text.sources], out_type=str),
            replace_unknowns=True,
            max_batch_size=4096,
            batch_type="tokens",
            beam_size=_BEAM_SIZE,
            length_penalty=_LENGTH_PENALTY,
        )
        return [pieces.decode_pieces(result.hypotheses[0]) for result in results]

    search = SearchOptions(beam_size=_BEAM_SIZE, length_penalty=_LENGTH_PENALTY, max_length=_MAX_LENGTH, scores=False)
    return compare_bleu(job, f"Argos Translate, {job.number_format}", search, translate)


def _usage(job: ExportJob, name: str) -> str:
    [source], [target] = job.config.data.source_lang, job.config.data.target_lang
    return f'''
## Installing

With `pip install argostranslate` ({_ARGOS_VERSION} or later), in this folder:

    python -c "from argostranslate import package; package.install_from_path('{name}.argosmodel')"
    argos-translate --from-lang {source} --to-lang {target} "{job.example}"

Nothing is fetched from the network: a rule in the package (`minisbd/`) splits text into sentences.
Argos Translate searches with a beam of {_BEAM_SIZE} and a length penalty of {_LENGTH_PENALTY}. It computes in 8 bits
on a CPU unless `ARGOS_COMPUTE_TYPE=float32` is set, and writes `_` as a space.
'''
