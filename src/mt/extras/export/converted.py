"""A plain CTranslate2 folder, for any client of that library."""

from pathlib import Path

import ctranslate2
import torch

from mt.bundle.to_ctranslate2 import write_converted
from mt.data.tokenizer import EOS_ID, SPECIALS
from mt.decoding.ctranslate2_engine import CTranslate2Engine
from mt.decoding.settings import TranslationSettings
from mt.decoding.translator import Translator
from mt.extras.export.checking import random_batch, require_equal
from mt.extras.export.loss import Yardstick
from mt.extras.export.subject import Subject
from mt.storage import atomic
from mt.storage.run_dir import tokenizer_names


def write_ctranslate2(
    subject: Subject, folder: Path, card: str, number_format: str, yardstick: Yardstick | None
) -> str:
    """Writes the folder, translates with it, and compares.

    Args:
        subject: the model.
        folder: being written.
        card: the README; how to translate is added.
        number_format: of the weights.
        yardstick: None compares the probabilities of random text; that is for float32 only.

    Returns:
        what was measured.

    Raises:
        InputError: it loses more than it may.
        MtError: it computes something else than the model.
    """
    tokenizers, settings = subject.tokenizers, TranslationSettings.of(subject.config)
    write_converted(subject.model, subject.config, tokenizers, folder, number_format)
    for name, content in tokenizers.files().items():
        atomic.write_text(folder / name, content)
    atomic.write_text(folder / "README.md", card + _usage(subject, settings))
    if yardstick is None:
        return _check(subject, folder)
    engine = CTranslate2Engine(
        folder, tokenizers, settings.max_positions, settings.batch_tokens, compute_type=computed_in(number_format)
    )
    translator = Translator(engine, tokenizers, settings.max_source_tokens, settings.target_langs)
    return yardstick.measure(
        f"CTranslate2, {number_format}",
        settings.search,
        lambda text: translator.to(text.target_lang).best(text.sources, settings.search),
    )


def _check(subject: Subject, folder: Path) -> str:
    translator = ctranslate2.Translator(str(folder), device="cpu", compute_type="float32")
    sources, targets = random_batch(subject)
    given = [
        [tokenizer.tokens([i for i in row if i >= len(SPECIALS)]) for row in ids.tolist()]
        for tokenizer, ids in ((subject.tokenizers.source, sources), (subject.tokenizers.target, targets))
    ]
    found = [result.log_probs for result in translator.score_batch(*given, max_input_length=0)]
    with torch.no_grad():
        log_probs = subject.model(sources, targets).log_softmax(-1)
    following = torch.cat([targets[:, 1:], torch.full_like(targets[:, :1], EOS_ID)], dim=1)
    expected = log_probs.gather(-1, following[..., None])[..., 0]
    return require_equal("CTranslate2", torch.tensor(found), expected, "log-probabilities")


def computed_in(number_format: str) -> str:
    """What CTranslate2 shall compute in on a CPU: what the weights are in, or what is nearest to it there."""
    return "float32" if number_format == "float16" else "default"


def _usage(subject: Subject, settings: TranslationSettings) -> str:
    source, target = tokenizer_names(subject.tokenizers.shared)
    search, tags = settings.search, subject.tags
    tag = f'["<2{next(iter(tags))}>"] + ' if tags else ""
    asks = f"\nThe first asks for the language: {', '.join(f'`<2{code}>`' for code in tags)}." if tags else ""
    return f'''
## Translating

With `pip install ctranslate2 tokenizers`, in this folder:

```python
import ctranslate2
from tokenizers import Tokenizer

translator = ctranslate2.Translator(".")
source, target = Tokenizer.from_file("{source}"), Tokenizer.from_file("{target}")
pieces = {tag}source.encode("{subject.example}").tokens
found = translator.translate_batch(
    [pieces],
    beam_size={search.beam_size},
    length_penalty={search.length_penalty:g},
    max_decoding_length={min(search.max_length, settings.max_positions - 1)},
    max_input_length=0,
    disable_unk=True,
    suppress_sequences=[["<pad>"], ["<s>"]],
)
print(target.decode([target.token_to_id(piece) for piece in found[0].hypotheses[0]], skip_special_tokens=False))
```

A source may have {settings.max_source_tokens - 2:,} pieces; the library itself adds `<s>` and `</s>`.{asks}
'''
