"""Measures fine-tuning: against transformers' Seq2SeqTrainer, and from a related language against from scratch.

    python scripts/bench/finetuning.py domain debian multi30k --work finetuning     # and with the two folders swapped
    python scripts/bench/finetuning.py related multi30k --work finetuning

`domain` trains en-fr on the second corpus, then fine-tunes on 10,000 pairs of the first: with the configuration that
`mt init --from` writes, within `--minutes` if given, and with Seq2SeqTrainer (AdamW, batches of 32 sentences of
similar length) from the exported model, at each learning rate of `--rates`. Both read the same pieces; wall time
includes loading, but not Seq2SeqTrainer's generation. chrF is of greedy translations of the test set. `related` trains
en-de, then en-fr on 5,000 pairs with and without that model. Needs accelerate for Seq2SeqTrainer. Folders hold train.*,
valid.* or val.*, test*.
"""

import argparse
import json
import random
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import sacrebleu
import yaml

SHAPE = {"d_model": 128, "n_heads": 4, "d_ff": 256, "encoder_layers": 4, "decoder_layers": 4, "norm": "pre"}


def main() -> int:
    """Run one of the comparisons."""
    arguments = _arguments()
    arguments.work.mkdir(parents=True, exist_ok=True)
    if arguments.comparison == "seq2seq":
        return _seq2seq(arguments)
    (_domain if arguments.comparison == "domain" else _related)(arguments)
    return 0


def _domain(arguments: argparse.Namespace) -> None:
    new, old = arguments.folders
    work, languages = arguments.work / f"{old.name}-to-{new.name}", ("en", "fr")
    work.mkdir(parents=True, exist_ok=True)
    start = _train(work / "start.yaml", _config("start", old, languages, arguments, dropout=0.1), work)
    few = _sample(new, languages, arguments.pairs, work / "few", arguments.seed)
    valid, test = _split(new, "val"), _split(new, "test")
    texts = [f"{path}.{code}" for path in (few, valid, test) for code in languages]
    options = ["--train", *texts[:2], "--valid", *texts[2:4], "--test", *texts[4:], "--name", "tuned", "--force"]
    options += ["--minutes", arguments.minutes] * bool(arguments.minutes)
    print(f"before: chrF {_chrf(start / 'model', test, languages):.2f}", flush=True)
    started = time.perf_counter()
    _mt(
        "init", "--from", start, *options, "--source-lang", "en", "--target-lang", "fr", "--output", work / "tuned.yaml"
    )
    print(f"mt init: {time.perf_counter() - started:.0f} s")
    started, cpu = time.perf_counter(), _cpu_seconds()
    _mt("train", "--config", work / "tuned.yaml", "--runs", work / "runs", "--set", "evaluation.methods=[greedy]")
    seconds, cpu = time.perf_counter() - started, _cpu_seconds() - cpu
    chrf = _chrf(work / "runs" / "tuned" / "model", test, languages)
    print(f"mt train: chrF {chrf:.2f} in {seconds:.0f} s ({cpu:.0f} of the CPU), test set included", flush=True)
    if not (work / "exported").exists():
        _mt("export", "huggingface", "--model", start, "--output", work / "exported")
    for rate in arguments.rates:
        command = [sys.executable, __file__, "seq2seq", str(work / "exported"), *map(str, (few, valid, test))]
        command += ["--work", str(work / f"seq2seq-{rate:g}"), "--rates", str(rate), "--epochs", str(arguments.epochs)]
        subprocess.run(command, check=True)


def _related(arguments: argparse.Namespace) -> None:
    folder, work = arguments.folders[0], arguments.work / "related"
    work.mkdir(parents=True, exist_ok=True)
    parent = _train(work / "parent.yaml", _config("parent", folder, ("en", "de"), arguments, dropout=0.1), work)
    few = _sample(folder, ("en", "fr"), arguments.pairs // 2, work / "few", arguments.seed)
    for name, changes in {"scratch": {}, "child": {"init_from": str(parent), "init_tokenizer": False}}.items():
        config = _config(name, folder, ("en", "fr"), arguments, dropout=0.3, train=few)
        config["tokenizer"]["vocab_size"] = 4000
        config["training"] |= {**changes, "patience": 5, "validate_every": 100}
        run = _train(work / f"{name}.yaml", config, work)
        scores = json.loads((run / "model" / "MANIFEST.json").read_text())["test"]
        print(f"{name}: " + ", ".join(f"{each['method']} BLEU {each['bleu']:.1f}" for each in scores), flush=True)


def _seq2seq(arguments: argparse.Namespace) -> int:
    """Fine-tune the exported model (the first folder) on texts (the others, without language) with transformers."""
    import torch
    from transformers import (
        AutoModelForSeq2SeqLM,
        AutoTokenizer,
        DataCollatorForSeq2Seq,
        Seq2SeqTrainer,
        Seq2SeqTrainingArguments,
    )

    started = time.perf_counter()
    exported, few, valid, test = arguments.folders
    tokenizer, model = AutoTokenizer.from_pretrained(exported), AutoModelForSeq2SeqLM.from_pretrained(exported)

    def encoded(path: Path) -> list[dict[str, list[int]]]:
        source, target = (tokenizer(_lines(path, code), truncation=True, max_length=128) for code in ("en", "fr"))
        starts = {model.config.decoder_start_token_id, tokenizer.bos_token_id}
        labels = [ids[1:] if ids[0] in starts else ids for ids in target["input_ids"]]
        return [{"input_ids": ids, "labels": label} for ids, label in zip(source["input_ids"], labels, strict=True)]

    settings = Seq2SeqTrainingArguments(
        output_dir=str(arguments.work),
        learning_rate=arguments.rates[0],
        num_train_epochs=arguments.epochs,
        per_device_train_batch_size=32,
        train_sampling_strategy="group_by_length",
        warmup_steps=100,
        label_smoothing_factor=0.1,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=1,
        load_best_model_at_end=True,
        report_to=[],
        bf16=arguments.bf16,
        use_cpu=not torch.cuda.is_available(),
        disable_tqdm=True,
    )
    data = [encoded(path) for path in (few, valid)]
    collator = DataCollatorForSeq2Seq(tokenizer, model=model)
    Seq2SeqTrainer(model, settings, data_collator=collator, train_dataset=data[0], eval_dataset=data[1]).train()
    seconds, cpu = time.perf_counter() - started, time.process_time()
    found: list[str] = []
    lines = _lines(test, "en")
    for begin in range(0, len(lines), 32):
        batch = tokenizer(lines[begin : begin + 32], return_tensors="pt", padding=True)
        ids = model.generate(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], num_beams=1)
        found += tokenizer.batch_decode(ids, skip_special_tokens=True)
    chrf = sacrebleu.corpus_chrf(found, [_lines(test, "fr")]).score
    taken = f"{seconds:.0f} s ({cpu:.0f} of the CPU)"
    print(f"Seq2SeqTrainer, rate {arguments.rates[0]:g}: chrF {chrf:.2f} in {taken}", flush=True)
    return 0


def _config(
    name: str,
    folder: Path,
    languages: tuple[str, str],
    arguments: argparse.Namespace,
    dropout: float,
    train: Any = None,
) -> dict[str, Any]:
    paths = {"train": train or folder / "train", "valid": _split(folder, "val"), "test": _split(folder, "test")}
    texts = {
        split: {
            side: str(Path(f"{path}.{code}").resolve())
            for side, code in zip(("source", "target"), languages, strict=True)
        }
        for split, path in paths.items()
    }
    return {
        "name": name,
        "data": {"source_lang": languages[0], "target_lang": languages[1], "root": "/", **texts},
        "tokenizer": {"vocab_size": 8000},
        "model": SHAPE | {"dropout": dropout},
        "training": {
            "max_tokens": 2048,
            "max_steps": arguments.steps,
            "optimizer": "muon",
            "learning_rate": 6.0e-3,
            "schedule": "cosine",
            "warmup_steps": 200,
            "validate_every": 250,
        },
        "decoding": {"beam_size": 5},
    }


def _train(path: Path, config: dict[str, Any], work: Path) -> Path:
    """Train, unless it is done; return the run folder."""
    path.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    _mt("train", "--config", path, "--runs", work / "runs")
    return work / "runs" / config["name"]


def _chrf(model: Path, test: Path, languages: tuple[str, str]) -> float:
    output = model.parent / "test.greedy"
    _mt("translate", "--model", model, "--input", f"{test}.{languages[0]}", "--output", output, "--beam", 1)
    return sacrebleu.corpus_chrf(output.read_text().splitlines(), [_lines(test, languages[1])]).score


def _sample(folder: Path, languages: tuple[str, str], number: int, output: Path, seed: int) -> Path:
    pairs = list(zip(*(_lines(folder / "train", code) for code in languages), strict=True))
    for code, lines in zip(languages, zip(*random.Random(seed).sample(pairs, number), strict=True), strict=True):
        Path(f"{output}.{code}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return output


def _lines(path: Path, code: str) -> list[str]:
    return Path(f"{path}.{code}").read_text(encoding="utf-8").splitlines()


def _split(folder: Path, start: str) -> Path:
    """Return the path of a split without its language, as folder/test_2016_flickr."""
    return sorted(folder.glob(f"{start}*.en"))[0].with_suffix("")


def _cpu_seconds() -> float:
    """Return the processor time of all processes that have ended: what a loaded machine does not change."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _mt(*words: object) -> None:
    done = subprocess.run([sys.executable, "-m", "mt", *map(str, words)], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("comparison", choices=("domain", "related", "seq2seq"))
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--pairs", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rates", type=float, nargs="*", default=[5e-5, 4e-4])
    parser.add_argument("--epochs", type=int, default=5, help="of Seq2SeqTrainer")
    parser.add_argument("--minutes", type=float, help="as of mt init")
    parser.add_argument("--bf16", action="store_true", help="Seq2SeqTrainer in bf16")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
