"""Compares imported models with transformers: logits, beam-5 translations of a test set, and their speed on a CPU.

    python scripts/bench/imports.py --data multi30k --minutes 5

For each kind (MarianMT, M2M-100, mBART-50) it trains a small model with transformers on English and German, imports the
folder, translates with `generate` and with both engines, and prints one line of JSON. `--data` is a folder with
train.en, train.de, test_2016_flickr.en and test_2016_flickr.de. Models that `--output` holds are not trained again, so
a first run with `--sentences 0` may train them with one thread, and a second one measure them.
"""

import argparse
import io
import json
import os
import random
import sys
import tempfile
import time
from pathlib import Path

import sacrebleu
import torch
import transformers
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

import mt
from mt.bundle.load_translator import open_model
from mt.data.sentence_format import framed
from mt.decoding.engine import EngineChoice, SearchOptions
from mt.storage.run_dir import ModelDir

SHAPE = {
    "d_model": 256,
    "encoder_layers": 3,
    "decoder_layers": 3,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 1024,
    "decoder_ffn_dim": 1024,
    "max_position_embeddings": 256,
    "scale_embedding": True,
}
LANGUAGES = {"marian": ("en", "de"), "m2m_100": ("en", "de"), "mbart": ("en_XX", "de_DE")}
ENGINES = ("torch", "ctranslate2")
BATCH_TOKENS, TRANSLATED_AT_ONCE, BEAM, MAX_LENGTH = 1024, 32, 5, 100


def train_sentencepiece(path, lines, kind):
    model = io.BytesIO()
    arguments = {"vocab_size": 8000, "model_type": kind, "character_coverage": 1.0, "minloglevel": 2}
    SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=model, **arguments)
    path.write_bytes(model.getvalue())
    processor = SentencePieceProcessor(model_proto=model.getvalue())
    return [processor.id_to_piece(i) for i in range(3, processor.get_piece_size())]


def make(kind, folder, lines):
    """Write the tokenizer's files in the hub's layout; return the tokenizer and a model with new weights."""
    source, target = LANGUAGES[kind]
    if kind == "marian":
        pieces = train_sentencepiece(folder / "source.spm", lines, "unigram")
        (folder / "target.spm").write_bytes((folder / "source.spm").read_bytes())
        names = ["</s>", "<unk>", *pieces, "<pad>"]
    else:
        names = ["<s>", "<pad>", "</s>", "<unk>"]
        names += train_sentencepiece(
            folder / "sentencepiece.bpe.model", lines, "bpe" if kind == "m2m_100" else "unigram"
        )
    if kind != "mbart":
        (folder / "vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate(names)}))
    files = [str(folder / name) for name in ("source.spm", "target.spm", "vocab.json", "sentencepiece.bpe.model")]
    if kind == "marian":
        tokenizer = transformers.MarianTokenizer(*files[:3], source_lang=source, target_lang=target)
        ids = {"pad_token_id": len(names) - 1, "decoder_start_token_id": len(names) - 1, "eos_token_id": 0}
        config = transformers.MarianConfig(
            vocab_size=len(names), **ids, **SHAPE, activation_function="swish", forced_eos_token_id=0
        )
        model = transformers.MarianMTModel(config)
    elif kind == "m2m_100":
        tokenizer = transformers.M2M100Tokenizer(*files[2:], src_lang=source, tgt_lang=target)
        model = transformers.M2M100ForConditionalGeneration(
            transformers.M2M100Config(vocab_size=len(names) + 108, **SHAPE)
        )
    else:
        tokenizer = transformers.MBart50Tokenizer.from_pretrained(folder, src_lang=source, tgt_lang=target)
        config = transformers.MBartConfig(vocab_size=len(tokenizer), **SHAPE, decoder_start_token_id=2)
        model = transformers.MBartForConditionalGeneration(config)
    tokenizer.save_pretrained(folder)
    return tokenizer, model


def train(model, tokenizer, pairs, minutes, bf16):
    """Train with AdamW for some minutes; return the number of updates and the last loss."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.98))
    rng, started, step, loss = random.Random(1), time.perf_counter(), 0, None
    model.train()
    while time.perf_counter() - started < 60 * minutes:
        step += 1
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * min(step / 200, (200 / step) ** 0.5)
        start, chosen = rng.randrange(len(pairs) - 100), []
        while sum(len(source.split()) for source, _ in chosen) < BATCH_TOKENS // 2 and start + len(chosen) < len(pairs):
            chosen.append(pairs[start + len(chosen)])  # sorted by length
        sources, targets = zip(*chosen, strict=True)
        batch = tokenizer(list(sources), text_target=list(targets), return_tensors="pt", padding=True)
        labels = batch["labels"].masked_fill(batch["labels"] == tokenizer.pad_token_id, -100)
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            loss = model(batch["input_ids"], attention_mask=batch["attention_mask"], labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    return step, loss.item()


def generate(model, tokenizer, lines, first, **options):
    """Translate with transformers, sentences of similar length together; return pieces, texts and seconds."""
    torch.set_num_threads(cores())  # loading CTranslate2 changes it
    order, found = sorted(range(len(lines)), key=lambda row: len(lines[row])), [None] * len(lines)
    started = time.perf_counter()
    for begin in range(0, len(order), TRANSLATED_AT_ONCE):
        rows = order[begin : begin + TRANSLATED_AT_ONCE]
        batch = tokenizer([lines[row] for row in rows], return_tensors="pt", padding=True)
        limits = {"num_beams": BEAM, "max_length": MAX_LENGTH + 2, "forced_bos_token_id": first}
        with torch.inference_mode():
            output = model.generate(**batch, **limits, **options)
        for row, ids in zip(rows, output.tolist(), strict=True):
            found[row] = ids[1 if first is None else 2 :]
    texts = tokenizer.batch_decode(found, skip_special_tokens=True)
    seconds, special = time.perf_counter() - started, set(tokenizer.all_special_ids)
    return [tokenizer.convert_ids_to_tokens([i for i in ids if i not in special]) for ids in found], texts, seconds


def translate(opened, lines):
    """Translate with one of our engines; return pieces, texts and seconds."""
    torch.set_num_threads(cores())
    options = SearchOptions(BEAM, 1, 1.0, max_length=MAX_LENGTH, max_length_ratio=100.0)
    started = time.perf_counter()
    found = [result[0] for result in opened.translator.translate(lines, options)]
    seconds = time.perf_counter() - started
    pieces = [opened.tokenizers.target.tokens(candidate.parts[0].target) for candidate in found]
    return pieces, [candidate.text for candidate in found], seconds


def cores():
    return int(os.environ.get("OMP_NUM_THREADS") or len(os.sched_getaffinity(0)))


def largest_difference(model, tokenizer, opened, source, target):
    """Return the largest difference of the two models' logits of a pair, over the pieces that both have."""
    pair, translator = opened.tokenizers, opened.translator
    ids = translator.tags.source(pair.source.encode(source)), translator.tags.target(pair.target.encode(target))
    ours = opened.model(torch.tensor([framed(ids[0], opened.settings.source_format)]), torch.tensor([[2, *ids[1]]]))
    batch = tokenizer(source, text_target=target, return_tensors="pt")
    labels = batch.pop("labels")
    with torch.inference_mode():
        shifted = torch.cat([torch.tensor([[model.config.decoder_start_token_id]]), labels[:, :-1]], dim=1)
        theirs = model(**batch, decoder_input_ids=shifted).logits
    names = tokenizer.convert_ids_to_tokens(list(range(theirs.shape[-1])))
    rows = {name: row for row, name in enumerate(names)}
    common = [(i, rows[name]) for i, name in enumerate(pair.target.pieces) if i > 2 and name in rows]
    mine, their = (list(side) for side in zip(*common, strict=True))
    return (ours[0, :, mine].detach() - theirs[0][:, their]).abs().max().item()


def obtain(kind, folder, options):
    """Return the tokenizer and the model that a folder holds, which are made and trained if it holds none."""
    if (folder / "model.safetensors").is_file():
        model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
        return transformers.AutoTokenizer.from_pretrained(folder), model
    folder.mkdir(parents=True)
    corpus = [read(options.data / f"train.{side}") for side in ("en", "de")]
    tokenizer, model = make(kind, folder, [line for side in corpus for line in side])
    pairs = sorted(zip(*corpus, strict=True), key=lambda pair: len(pair[0]))
    steps, loss = train(model, tokenizer, pairs, options.minutes, options.bf16)
    print(f"{kind}: {steps:,} updates, loss {loss:.2f}", file=sys.stderr)
    model.save_pretrained(folder)
    return tokenizer, model


def read(path):
    return path.read_text(encoding="utf-8").splitlines()


def compare(kind, options, output):
    """Train, import and translate with one kind of model; return the results by name."""
    source, target = LANGUAGES[kind]
    lines, references = (read(options.data / f"test_2016_flickr.{side}")[: options.sentences] for side in ("en", "de"))
    folder, ours = output / kind, output / f"{kind}-mt"
    tokenizer, model = obtain(kind, folder, options)
    mt.import_model(folder, ours, source_lang=source, target_langs=[target], force=True)
    if not lines:
        return {"kind": kind}
    engines = {name: open_model(ModelDir(ours), EngineChoice(name, "cpu", "float32")) for name in ENGINES}
    tag = {"marian": None, "m2m_100": f"__{target}__", "mbart": target}[kind]
    first = None if tag is None else tokenizer.convert_tokens_to_ids(tag)
    pairs = list(zip(lines[:20], references[:20], strict=True))
    logits = max(largest_difference(model, tokenizer, engines["torch"], *pair) for pair in pairs)
    results = {"kind": kind, "cores": cores(), "sentences": len(lines), "logits": logits}
    generate(model, tokenizer, lines[:TRANSLATED_AT_ONCE], first, early_stopping=True)  # warm up
    theirs, texts, their_seconds = generate(model, tokenizer, lines, first, early_stopping=True)
    # Where the longest translation is reached, transformers' forced end costs nothing, and ours what the model says.
    ended = [len(pieces) < MAX_LENGTH - (first is not None) for pieces in theirs]
    longer, _, _ = generate(model, tokenizer, lines, first, early_stopping=False)
    results |= {"bleu": sacrebleu.corpus_bleu(texts, [references]).score, "seconds": their_seconds, "ended": sum(ended)}
    for name, opened in engines.items():
        translate(opened, lines[:TRANSLATED_AT_ONCE])
        pieces, texts, seconds = translate(opened, lines)
        same = list(map(list.__eq__, pieces, theirs))
        results |= {
            f"{name}_same": sum(same) / len(lines),
            f"{name}_same_of_ended": sum(s and e for s, e in zip(same, ended, strict=True)) / max(1, sum(ended)),
            f"{name}_same_without_early_stopping": sum(map(list.__eq__, pieces, longer)) / len(lines),
            f"{name}_bleu": sacrebleu.corpus_bleu(texts, [references]).score,
            f"{name}_seconds": seconds,
            f"{name}_speedup": their_seconds / seconds,
        }
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--kinds", nargs="*", choices=LANGUAGES, default=list(LANGUAGES))
    parser.add_argument("--minutes", type=float, default=5, help="of training, each kind")
    parser.add_argument("--bf16", action="store_true", help="train in bf16")
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--output", type=Path, help="keep the models here")
    options = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(cores())
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        for kind in options.kinds:
            output = options.output or Path(folder)
            results = compare(kind, options, output)
            print(json.dumps(results), flush=True)


if __name__ == "__main__":
    main()
