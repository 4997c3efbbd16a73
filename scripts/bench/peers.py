"""The other toolkits of training.py: each trains its own model of the same shape when told to.

    PYTHON peers.py marian SPEC.json CORPUS.npz

PYTHON is an interpreter that has torch, numpy and the peer, but need not have mt. Every line on stdin is a number of
updates to do; the answer is one JSON line: seconds, the sentences of each batch, the last loss, peak memory in bytes.

    marian    transformers' MarianMTModel in a plain PyTorch loop, on the batches that mt trains on
    joeynmt   JoeyNMT's model, loss and batches (random order, as its sampler cuts them), with a loop like its own
"""

import itertools
import json
import resource
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
import torch.nn.functional as F

PAD, SOS, EOS = 0, 2, 3


class Corpus:
    """Token ids without specials, and the batches of mt's plan."""

    def __init__(self, path):
        with np.load(path) as arrays:
            self.source = np.split(arrays["source"].astype(np.int64), arrays["source_starts"][1:-1])
            self.target = np.split(arrays["target"].astype(np.int64), arrays["target_starts"][1:-1])
            self.plan = np.split(arrays["plan"], arrays["plan_starts"][1:-1])


def pad(sentences, value=PAD):
    rows = [torch.tensor(sentence) for sentence in sentences]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=value)


class Marian:
    """MarianMTModel: sdpa attention, fused Adam, dynamic padding, buckets."""

    def __init__(self, spec, corpus):
        from transformers import MarianConfig, MarianMTModel

        self.spec, self.corpus = spec, corpus
        self.device = torch.device(spec["device"])
        shape = {
            "d_model": spec["d_model"],
            "encoder_layers": spec["layers"],
            "decoder_layers": spec["layers"],
            "encoder_attention_heads": spec["heads"],
            "decoder_attention_heads": spec["heads"],
            "encoder_ffn_dim": spec["d_ff"],
            "decoder_ffn_dim": spec["d_ff"],
        }
        tokens = {"pad_token_id": PAD, "eos_token_id": EOS, "decoder_start_token_id": SOS}
        config = MarianConfig(
            vocab_size=spec["vocab"],
            **shape,
            **tokens,
            dropout=spec["dropout"],
            attention_dropout=0.0,
            activation_function="relu",
            scale_embedding=True,
            max_position_embeddings=512,
            use_cache=False,
            attn_implementation="sdpa",
        )
        self.model = MarianMTModel(config).to(self.device).train()
        self.parameters = list(self.model.parameters())
        self.optimizer = torch.optim.Adam(self.parameters, lr=5e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)
        self.begin()

    def begin(self):
        self.batches = iter(self.corpus.plan)

    def update(self):
        rows = next(self.batches)
        src = pad([np.r_[SOS, self.corpus.source[i], EOS] for i in rows])
        tgt_in = pad([np.r_[SOS, self.corpus.target[i]] for i in rows])
        tgt_out = pad([np.r_[self.corpus.target[i], EOS] for i in rows])
        src, tgt_in, tgt_out = (x.to(self.device, non_blocking=True) for x in (src, tgt_in, tgt_out))
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.spec["precision"] == "bf16"):
            logits = self.model(input_ids=src, attention_mask=(src != PAD).long(), decoder_input_ids=tgt_in).logits
            loss = F.cross_entropy(logits.flatten(0, 1), tgt_out.flatten(), ignore_index=PAD, label_smoothing=0.1)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return rows, loss.detach()


class JoeyNMT:
    """Its modules as its configuration builds them: tied embeddings, batches in random order, gradients clipped."""

    UNK, PAD, BOS, EOS = 0, 1, 2, 3

    def __init__(self, spec, corpus):
        from joeynmt.model import build_model
        from joeynmt.vocabulary import Vocabulary

        names = {"unk_token": "<unk>", "pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
        numbers = {"unk_id": self.UNK, "pad_id": self.PAD, "bos_id": self.BOS, "eos_id": self.EOS}
        special = SimpleNamespace(**names, **numbers, sep_token=None, sep_id=None, lang_tags=[])
        vocabulary = Vocabulary([str(i) for i in range(spec["vocab"] - 4)], special)
        stack = {
            "type": "transformer",
            "num_layers": spec["layers"],
            "num_heads": spec["heads"],
            "embeddings": {"embedding_dim": spec["d_model"], "scale": True, "dropout": spec["dropout"]},
            "hidden_size": spec["d_model"],
            "ff_size": spec["d_ff"],
            "dropout": spec["dropout"],
            "layer_norm": "post",
        }
        shape = {"encoder": stack, "decoder": dict(stack), "tied_embeddings": True, "tied_softmax": True}
        self.spec, self.corpus = spec, corpus
        self.device = torch.device(spec["device"])
        self.model = build_model(shape, vocabulary, vocabulary)
        self.model.loss_function = ("crossentropy", 0.1)
        self.model = self.model.to(self.device).train()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=5e-4, betas=(0.9, 0.98))
        self.begin()

    def begin(self):
        random = np.random.default_rng(1)
        epochs = (random.permutation(len(self.corpus.source)) for _ in itertools.count())
        self.batches = self.cut(itertools.chain.from_iterable(epochs))

    def cut(self, order):
        """Yield batches as joeynmt's TokenBatchSampler does: one is full when its padded tokens reach the budget."""
        batch, longest = [], 0
        for i in order:
            batch.append(i)
            longest = max(longest, len(self.corpus.source[i]) + 1, len(self.corpus.target[i]) + 1)
            if longest * len(batch) >= self.spec["max_tokens"]:
                yield np.array(batch)
                batch, longest = [], 0

    def update(self):
        from joeynmt.batch import Batch

        rows = next(self.batches)
        src = [np.r_[self.corpus.source[i], self.EOS] for i in rows]
        tgt = [np.r_[self.BOS, self.corpus.target[i], self.EOS] for i in rows]
        lengths = torch.tensor([len(sentence) for sentence in src])
        arrays = (pad(src, self.PAD), lengths, None, pad(tgt, self.PAD), None, torch.tensor(rows))
        batch = Batch(*arrays, device=self.device, pad_index=self.PAD, eos_index=self.EOS)
        batch.sort_by_src_length()
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.spec["precision"] == "bf16"):
            summed, _, _, _ = self.model(return_type="loss", **vars(batch))
            loss = batch.normalize(summed, normalization="tokens")
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.model.zero_grad()
        return rows, torch.tensor(loss.item())


def serve(contestant, device):
    """Do as many updates as each line of stdin says."""
    print(json.dumps({"parameters": sum(p.numel() for p in contestant.model.parameters())}), flush=True)
    for line in sys.stdin:
        if contestant.spec["repeat"]:
            contestant.begin()
        started = time.perf_counter()
        done = [contestant.update() for _ in range(int(line))]
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds = time.perf_counter() - started
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        if device.type == "cuda":
            peak = torch.cuda.max_memory_allocated()
        answer = {"seconds": seconds, "batches": [rows.tolist() for rows, _ in done], "peak": peak}
        print(json.dumps(answer | {"loss": float(done[-1][1])}), flush=True)


def main():
    name, spec_path, corpus_path = sys.argv[1:]
    with Path(spec_path).open(encoding="utf-8") as file:
        spec = json.load(file)
    torch.manual_seed(1)
    contestant = {"marian": Marian, "joeynmt": JoeyNMT}[name](spec, Corpus(corpus_path))
    serve(contestant, torch.device(spec["device"]))


if __name__ == "__main__":
    main()
