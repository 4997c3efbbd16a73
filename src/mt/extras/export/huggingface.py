"""Export to Hugging Face transformers, for `AutoModelForSeq2SeqLM` and `AutoTokenizer`."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from mt.config import Config
from mt.data.sentence_format import framed
from mt.data.tokenizer import EOS_ID, PAD_ID, SOS, SOS_ID, UNK_ID, normalized
from mt.decoding.settings import TranslationSettings
from mt.errors import MtError
from mt.extras.export.common import ExportJob, write_mt_folder
from mt.extras.export.equivalence import random_batch, require_equal, sample_texts
from mt.extras.export.huggingface_tokenizer import is_marian, tokenizer_config, tokenizer_json, write_marian_tokenizer
from mt.extras.export.huggingface_weights import class_of, huggingface_weights, n_positions, target_shift
from mt.storage import atomic


def write_huggingface(job: ExportJob, folder: Path, card: str) -> str:
    """Write the model and a README that contains `card`; load it, compare logits, and return the comparison.

    Raises:
        MtError: logits or tokens differ.
    """
    config, model, tokenizers = job.config, job.model, job.tokenizers
    has_marian_tokenizer = is_marian(config, tokenizers)
    shift = 0 if has_marian_tokenizer else target_shift(model)
    atomic.write_tensors(folder / "model.safetensors", huggingface_weights(model, config, shift), format="pt")
    atomic.write_json(folder / "config.json", _model_config(job, shift))
    atomic.write_json(folder / "generation_config.json", _generation_config(config, shift))
    longest = TranslationSettings.of(config).max_source_tokens
    if has_marian_tokenizer:
        write_marian_tokenizer(config, tokenizers, longest, folder)
    else:
        atomic.write_text(folder / "tokenizer.json", tokenizer_json(tokenizers, shift, config.model.source_format))
        atomic.write_json(folder / "tokenizer_config.json", tokenizer_config(shift, longest))
    atomic.write_text(folder / "README.md", _with_header(config, card) + _usage(job, shift))
    write_mt_folder(job, folder)
    with _quiet():
        _compare_tokenizer(job, folder, shift)
        return _compare_logits(job, folder, shift)


def _model_config(job: ExportJob, shift: int) -> dict[str, Any]:
    """Return `config.json` with every key whose default could matter."""
    config, shape = job.config, job.config.model
    model_type, class_name = class_of(shape)
    decoder_vocab_size = shift + job.tokenizers.target.vocab_size
    is_shared = shift > 0 or target_shift(job.model) == 0
    return {
        "architectures": [class_name],
        "model_type": model_type,
        "vocab_size": decoder_vocab_size if is_shared else job.tokenizers.source.vocab_size,
        **(
            {"decoder_vocab_size": decoder_vocab_size, "share_encoder_decoder_embeddings": is_shared}
            if shape.norm == "post"
            else {}
        ),
        "d_model": shape.d_model,
        "encoder_layers": shape.encoder_layers,
        "decoder_layers": shape.decoder_layers,
        "encoder_attention_heads": shape.n_heads,
        "decoder_attention_heads": shape.n_heads,
        "encoder_ffn_dim": shape.d_ff,
        "decoder_ffn_dim": shape.d_ff,
        "encoder_layerdrop": 0.0,
        "decoder_layerdrop": 0.0,
        "activation_function": shape.activation,
        "dropout": shape.dropout,
        "attention_dropout": shape.attention_dropout,
        "activation_dropout": shape.activation_dropout,
        "max_position_embeddings": n_positions(config),
        "scale_embedding": shape.scale_embeddings,
        "tie_word_embeddings": shape.tie_embeddings,
        "is_encoder_decoder": True,
        "use_cache": True,
        "pad_token_id": PAD_ID,
        "bos_token_id": shift + SOS_ID,
        "eos_token_id": shift + EOS_ID,
        "decoder_start_token_id": shift + SOS_ID,
        "forced_eos_token_id": None,
        "torch_dtype": "float32",
    }


def _generation_config(config: Config, shift: int) -> dict[str, Any]:
    """Return `generation_config.json`, with which `generate()` searches as `mt` does.

    It cannot express `max_length_ratio`, the length bound that depends on the source. An end that is forced is free in
    its beam search, but costs its log-probability in ours.
    """
    decoding = config.decoding
    longest = min(config.longest_translation, n_positions(config) - 1)
    return {
        "num_beams": decoding.beam_size,
        "length_penalty": decoding.length_penalty,
        "early_stopping": decoding.beam_size > 1,
        "max_length": longest + 2,  # including SOS and EOS
        "forced_eos_token_id": shift + EOS_ID,  # at that length
        "min_length": decoding.min_length + 1 if decoding.min_length else 0,
        **({"no_repeat_ngram_size": decoding.no_repeat_ngram_size} if decoding.no_repeat_ngram_size else {}),
        # Removed before normalisation, as in `mt.decoding`.
        "suppress_tokens": [shift + i for i in (PAD_ID, UNK_ID, SOS_ID)],
        "renormalize_logits": True,
        "pad_token_id": PAD_ID,
        "bos_token_id": shift + SOS_ID,
        "eos_token_id": shift + EOS_ID,
        "decoder_start_token_id": shift + SOS_ID,
    }


def _with_header(config: Config, card: str) -> str:
    """Return a card with the hub's keys in its front matter, before a licence."""
    codes = dict.fromkeys((*config.data.source_lang, *config.data.target_lang))
    languages = "\n".join(f'- "{language}"' for language in codes)
    keys = f"language:\n{languages}\npipeline_tag: translation\nlibrary_name: transformers\ntags:\n- mt\n"
    return f"---\n{keys}" + (card.removeprefix("---\n") if card.startswith("---\n") else f"---\n\n{card}")


def _compare_logits(job: ExportJob, folder: Path, shift: int) -> str:
    from transformers import AutoModelForSeq2SeqLM

    theirs = AutoModelForSeq2SeqLM.from_pretrained(folder, local_files_only=True).eval()
    sources, targets = random_batch(job)
    with torch.no_grad():
        expected = job.model(sources, targets)
        mask = (sources != PAD_ID).long()
        logits = theirs(input_ids=sources, attention_mask=mask, decoder_input_ids=targets + shift).logits
    return require_equal("transformers", logits[..., shift:], expected)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the library, which reports every file that it opens."""
    from transformers.utils import logging

    level, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bar:
            logging.enable_progress_bar()


def _compare_tokenizer(job: ExportJob, folder: Path, shift: int) -> None:
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    tokenizers = job.tokenizers
    texts = list(map(normalized, sample_texts(tokenizers.source, job.sources)))
    source_format = job.config.model.source_format
    expected = [framed(ids, source_format) for ids in tokenizers.source.encode_batch(texts)]
    if theirs(texts)["input_ids"] != expected:
        raise MtError("transformers does not encode text as the model's tokenizer does", "please report it")
    targets = tokenizers.target.encode_batch(sample_texts(tokenizers.target, job.references))
    shifted = [[shift + i for i in (SOS_ID, *ids, EOS_ID)] for ids in targets]
    decoded = theirs.batch_decode(shifted, skip_special_tokens=True), tokenizers.target.decode_batch(targets)
    if [text.strip() for text in decoded[0]] != [text.strip() for text in decoded[1]]:
        raise MtError("transformers does not decode tokens as the model's tokenizer does", "please report it")


def _usage(job: ExportJob, shift: int) -> str:
    tags = job.tags
    mark = ">>{}<<" if is_marian(job.config, job.tokenizers) else "<2{}> "
    tag = mark.format(next(iter(tags))) if tags else ""
    notes = [f"A source may have {job.config.data.max_length:,} tokens; what is beyond is cut off."]
    if job.config.model.source_format.startswith(SOS):
        notes[0] += (
            " To train it further, give labels without the `<s>` that the tokenizer begins with: the library puts one "
            "before them itself."
        )
    if tags:
        notes.append(
            "The tag before a text asks for the language: "
            f"{', '.join(f'`{mark.format(code).strip()}`' for code in tags)}."
        )
    if shift:
        notes.append(
            f"Source and target have matrices of their own: target ids begin at {shift}, and the tokenizer encodes "
            "source text and decodes translations."
        )
    shape = job.config.model
    if (shape.norm, shape.positions) == ("post", "learned"):
        notes.append("Its positions are learned; `save_pretrained` leaves them out, so keep this folder's weights.")
    return f'''
## Translating

```python
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("THIS_FOLDER")
model = AutoModelForSeq2SeqLM.from_pretrained("THIS_FOLDER").eval()
batch = tokenizer(["{tag}{job.example}"], return_tensors="pt", padding=True, truncation=True)
print(tokenizer.batch_decode(model.generate(**batch), skip_special_tokens=True))
```
{"".join(f"{chr(10)}{note}{chr(10)}" for note in notes)}'''
