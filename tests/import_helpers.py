"""Small folders of transformers' models in the hub's layout, with SentencePiece tokenizers of a few sentences."""

import io
import json
from pathlib import Path
from typing import Any

import torch
import transformers
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer
from transformers import (
    M2M100Config,
    M2M100ForConditionalGeneration,
    M2M100Tokenizer,
    MarianConfig,
    MarianMTModel,
    MarianTokenizer,
    MBart50Tokenizer,
    MBartConfig,
    MBartForConditionalGeneration,
    MBartTokenizer,
    NllbTokenizer,
)

from engine_helpers import ENGLISH, GERMAN
from mt.data.sentence_format import SentenceFormat, framed
from mt.data.tokenizer import EOS_ID, SOS_ID, SPECIALS
from mt.extras.importing.weights import Plan

SHAPE = {
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": 64,
}
TEXT = [*ENGLISH, *GERMAN, "The dog and the men.", "Der Hund und die Männer.", "Old grass.", "Altes Gras, zwei Häuser."]


def sentencepiece(folder: Path, name: str, lines: list[str] = TEXT, size: int = 80, kind: str = "unigram") -> list[str]:
    """Train a SentencePiece model and return its pieces without the specials."""
    model = io.BytesIO()
    arguments = {"vocab_size": size, "model_type": kind, "minloglevel": 2, "hard_vocab_limit": False}
    SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=model, **arguments)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(model.getvalue())
    processor = SentencePieceProcessor(model_proto=model.getvalue())
    return [processor.id_to_piece(i) for i in range(3, processor.get_piece_size())]


def write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


def scrambled(model: Any, seed: int = 0) -> Any:
    """Draw all weights, biases too, with a spread large enough that outputs differ."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:  # not Marian's sinusoids, which are not saved
                parameter.normal_(1.0 if name.endswith("norm.weight") else 0.0, 0.2, generator=generator)
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.normal_(0.0, 0.5, generator=generator)
    return model.eval()


def save(model: Any, folder: Path, seed: int = 0) -> Any:
    transformers.logging.disable_progress_bar()
    scrambled(model, seed).save_pretrained(folder)
    return model


def teach(model: Any, folder: Path, plan: Plan, steps: int) -> None:
    """Train a model to write the next id for each one that it reads, so that its translations vary, and save it."""
    tags = SentenceFormat.of(plan.config).tags(plan.tokenizers, plan.config.data.target_lang[0])
    generator, smallest = torch.Generator().manual_seed(0), min(map(len, (plan.source_rows, plan.target_rows)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(steps):
        length = 1 + step % 6
        ids = torch.randint(len(SPECIALS), smallest - 1, (64, length), generator=generator).tolist()
        source = torch.tensor([framed(tags.source(row), plan.config.model.source_format) for row in ids])
        target = torch.tensor([[SOS_ID, *tags.target([i + 1 for i in row]), EOS_ID] for row in ids])
        labels = plan.target_rows[target]
        loss = model(plan.source_rows[source], decoder_input_ids=labels[:, :-1], labels=labels[:, 1:].clone()).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval().save_pretrained(folder)


def marian(folder: Path, separate: bool = False, tags: tuple[str, ...] = (), seed: int = 0, **changes: Any) -> Any:
    """Write a MarianMT folder and return its model."""
    if separate:
        texts = (("source.spm", ENGLISH), ("target.spm", GERMAN))
        sides = [sentencepiece(folder, name, text, 60) for name, text in texts]
    else:
        sides = [sentencepiece(folder, "source.spm")] * 2
        sentencepiece(folder, "target.spm", TEXT[::-1], 70)
    ids = []
    for pieces in sides:
        names = ["</s>", "<unk>", *pieces, *(f">>{tag}<<" for tag in tags)]
        names.insert(2 if separate else len(names), "<pad>")  # in config.json both sides have one number
        ids.append({piece: i for i, piece in enumerate(names)})
    write_json(folder / "vocab.json", ids[0])
    write_json(folder / "target_vocab.json", ids[1])
    files = [str(folder / name) for name in ("source.spm", "target.spm", "vocab.json", "target_vocab.json")]
    tokenizer = MarianTokenizer(*files, source_lang="en", target_lang="de", separate_vocabs=separate)
    tokenizer.save_pretrained(folder)
    pad = ids[1]["<pad>"]
    shape = {**SHAPE, "activation_function": "swish", "scale_embedding": True, **changes}
    config = MarianConfig(
        vocab_size=len(ids[0]),
        decoder_vocab_size=len(ids[1]),
        share_encoder_decoder_embeddings=not separate,
        pad_token_id=pad,
        decoder_start_token_id=pad,
        eos_token_id=0,
        forced_eos_token_id=None,
        **shape,
    )
    return save(MarianMTModel(config), folder, seed)


def m2m_100(folder: Path, seed: int = 0, **changes: Any) -> Any:
    """Write an M2M-100 folder, with rows that belong to no piece, and return its model."""
    pieces = sentencepiece(folder, "sentencepiece.bpe.model", kind="bpe", size=100)
    names = ["<s>", "<pad>", "</s>", "<unk>", *pieces]
    write_json(folder / "vocab.json", {piece: i for i, piece in enumerate(names)})
    tokenizer = M2M100Tokenizer(str(folder / "vocab.json"), str(folder / "sentencepiece.bpe.model"), src_lang="en")
    tokenizer.save_pretrained(folder)
    shape = {**SHAPE, "activation_function": "relu", **changes}
    return save(M2M100ForConditionalGeneration(M2M100Config(vocab_size=len(names) + 108, **shape)), folder, seed)


def nllb(folder: Path, legacy: bool = False, seed: int = 0, **changes: Any) -> Any:
    """Write an NLLB folder and return its model; `legacy` puts the source's language behind the sentence."""
    sentencepiece(folder, "sentencepiece.bpe.model", kind="bpe", size=100)
    codes = ["deu_Latn", "eng_Latn", "zho_Hans"]
    options = {"src_lang": "eng_Latn", "legacy_behaviour": legacy, "extra_special_tokens": codes}
    tokenizer = NllbTokenizer.from_pretrained(folder, **options)
    tokenizer.save_pretrained(folder)
    shape = {**SHAPE, "activation_function": "relu", **changes}
    return save(M2M100ForConditionalGeneration(M2M100Config(vocab_size=len(tokenizer) + 2, **shape)), folder, seed)


def mbart(folder: Path, first: bool = False, seed: int = 0, **changes: Any) -> Any:
    """Write an mBART-50 folder, or one of the first mBART, whose decoder begins with the language."""
    sentencepiece(folder, "sentencepiece.bpe.model")
    kind = MBartTokenizer if first else MBart50Tokenizer
    tokenizer = kind.from_pretrained(folder, src_lang="en_XX")
    tokenizer.save_pretrained(folder)
    start = tokenizer.convert_tokens_to_ids("de_DE") if first else 2
    shape = {**SHAPE, "activation_function": "gelu", "scale_embedding": True, "forced_eos_token_id": None, **changes}
    config = MBartConfig(vocab_size=len(tokenizer), decoder_start_token_id=start, **shape)
    return save(MBartForConditionalGeneration(config), folder, seed)
