"""Export to CTranslate2: a plain folder for any client of the library."""

from pathlib import Path

import ctranslate2
import torch

from mt.bundle.to_ctranslate2 import write_converted
from mt.data.sentencepiece_tokenizer import SentencePieceTokenizer
from mt.data.tokenizer import EOS, EOS_ID, SOS, SPECIALS
from mt.decoding.ctranslate2_engine import CTranslate2Engine
from mt.decoding.settings import TranslationSettings
from mt.decoding.translator import Translator
from mt.extras.export.common import ExportJob, write_mt_folder
from mt.extras.export.equivalence import compare_bleu, random_batch, require_equal
from mt.storage import atomic
from mt.storage.run_dir import tokenizer_names

_SENTENCEPIECE = ("source.spm", "target.spm")
_CLASSES = {"sentencepiece": "SentencePieceProcessor", "tokenizers": "Tokenizer"}  # by package


def write_ctranslate2(job: ExportJob, folder: Path, card: str) -> str:
    """Write the model and a README that begins with `card`; compare translations, and return the comparison.

    Without texts, probabilities of random text are compared, for which the weights must be in float32.

    Raises:
        InputError: it loses more BLEU than allowed.
        MtError: its probabilities differ.
    """
    tokenizers, settings = job.tokenizers, TranslationSettings.of(job.config)
    write_converted(job.model, job.config, tokenizers, folder, job.number_format)
    tokenizers.write(folder)
    for name, tokenizer in zip(_SENTENCEPIECE, tokenizers, strict=True):
        if isinstance(tokenizer, SentencePieceTokenizer):
            atomic.write_bytes(folder / name, tokenizer.models[0])
    atomic.write_text(folder / "README.md", card + _usage(job, settings))
    write_mt_folder(job, folder)
    if not job.texts:
        return _compare_probabilities(job, folder)
    # CPUs do not compute in float16.
    compute_type = "float32" if job.number_format == "float16" else "default"
    engine = CTranslate2Engine(folder, tokenizers, settings, compute_type=compute_type)
    translator = Translator(engine, tokenizers, settings)
    return compare_bleu(
        job,
        f"CTranslate2, {job.number_format}",
        settings.search,
        lambda text: translator.for_text(text).best(text.sources, settings.search),
    )


def _compare_probabilities(job: ExportJob, folder: Path) -> str:
    translator = ctranslate2.Translator(str(folder), device="cpu", compute_type="float32")
    sources, targets = random_batch(job)
    pieces = [
        [tokenizer.tokens([i for i in row if i >= len(SPECIALS)]) for row in ids.tolist()]
        for tokenizer, ids in ((job.tokenizers.source, sources), (job.tokenizers.target, targets))
    ]
    actual = [result.log_probs for result in translator.score_batch(*pieces, max_input_length=0)]
    with torch.no_grad():
        log_probs = job.model(sources, targets).log_softmax(-1)
    next_tokens = torch.cat([targets[:, 1:], torch.full_like(targets[:, :1], EOS_ID)], dim=1)
    expected = log_probs.gather(-1, next_tokens[..., None])[..., 0]
    return require_equal("CTranslate2", torch.tensor(actual), expected, "log-probabilities")


def _usage(job: ExportJob, settings: TranslationSettings) -> str:
    packages, opened = _opened(job)
    imports = "\n".join(f"from {package} import {_CLASSES[package]}" for package in packages)
    are_pieces = [isinstance(tokenizer, SentencePieceTokenizer) for tokenizer in job.tokenizers]
    encoded = f'source.encode("{job.example}"' + (", out_type=str)" if are_pieces[0] else ").tokens")
    decoded = "found[0].hypotheses[0]"
    if not are_pieces[1]:
        decoded = f"[target.token_to_id(piece) for piece in {decoded}], skip_special_tokens=False"
    source, target = settings.trained_pairs[0]
    tags = settings.sentence_format.of_source(source).tags(job.tokenizers, target)
    before, after = (job.tokenizers.source.tokens(ids) for ids in (tags.before, tags.after))
    pieces = " + ".join([*([str(before)] if before else []), encoded, *([str(after)] if after else [])])
    prefix = ""
    if tags.first is not None:
        prefix = f"\n    target_prefix=[{job.tokenizers.target.tokens([tags.first])}],"
        decoded = decoded.replace("hypotheses[0]", "hypotheses[0][1:]")
    added = " and ".join(f"`{special}`" for special in (SOS, EOS) if special in settings.source_format and not after)
    added_note = f"; the library itself adds {added}" if added else ""
    return f"""
## Translating

With `pip install ctranslate2 {" ".join(packages)}`, in this folder:

```python
import ctranslate2
{imports}

translator = ctranslate2.Translator(".")
source, target = {opened}
pieces = {pieces}
found = translator.translate_batch(
    [pieces],{prefix}
{_search_arguments(settings)}
    max_input_length=0,
    disable_unk=True,
    suppress_sequences=[["<pad>"], ["<s>"]],
)
print(target.decode({decoded}))
```

A source may have {settings.max_source_tokens - 2:,} pieces{added_note}.{_tags_note(job, settings)}
"""


def _opened(job: ExportJob) -> tuple[list[str], str]:
    """Return the packages that the tokenizers need, and the code that opens both."""
    packages, opened = [], []
    for tokenizer, model, file in zip(
        job.tokenizers, _SENTENCEPIECE, tokenizer_names(job.tokenizers.shared), strict=True
    ):
        is_pieces = isinstance(tokenizer, SentencePieceTokenizer)
        packages.append("sentencepiece" if is_pieces else "tokenizers")
        opened.append(f'SentencePieceProcessor("{model}")' if is_pieces else f'Tokenizer.from_file("{file}")')
    return sorted(set(packages)), ", ".join(opened)


def _search_arguments(settings: TranslationSettings) -> str:
    search = settings.search
    arguments = {
        "beam_size": search.beam_size,
        "length_penalty": f"{search.length_penalty:g}",
        "no_repeat_ngram_size": search.no_repeat_ngram_size,
        "min_decoding_length": search.min_length,
        "max_decoding_length": min(search.max_length, settings.max_positions - 1),
    }
    return "\n".join(f"    {name}={value}," for name, value in arguments.items())


def _tags_note(job: ExportJob, settings: TranslationSettings) -> str:
    codes = ", ".join(f"`<2{code}>`" for code in job.tags)
    note = f"\nThe tags of the languages to translate into are {codes}." if codes else ""
    if settings.sentence_format.names_source:
        codes = ", ".join(f"`<2{code}>`" for code in settings.source_langs)
        note += f"\nThe tags that name the language of a source are {codes}."
    return note
