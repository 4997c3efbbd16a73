"""The other contestants of decoding.py: each translates with our weights when told to.

    PYTHON decoding_peers.py ctranslate2 SPEC.json '["float32", 1, 2, 64]'
    PYTHON decoding_peers.py transformers SPEC.json
    PYTHON decoding_peers.py joeynmt SPEC.json

PYTHON is an interpreter that has the library, but need not have mt. Once the model is built, {"ready": true} is
printed. Every line on stdin is a request such as {"beam": 5, "batch": 64, "sentences": 1000}; the answer is one JSON
line: seconds, output tokens without EOS, peak memory in bytes, and the translations as token ids.

    ctranslate2    its own client on the model folder's conversion: number format, workers, threads, batch size
    transformers   MarianMTModel (post-norm) or M2M100ForConditionalGeneration (pre-norm) and their generate()
    joeynmt        JoeyNMT's Transformer and its search()
"""

import json
import logging
import math
import resource
import sys
import time
from pathlib import Path
from types import SimpleNamespace

PAD, SOS, EOS = 0, 2, 3


def serve(contestant, device):
    """Answer the requests on stdin (mt's own workers do so, too); translate() is timed, counted() is not."""
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        started = time.perf_counter()
        result = contestant.translate(request)
        seconds = time.perf_counter() - started
        translations, tokens = contestant.counted(result)
        answer = {"seconds": seconds, "tokens": tokens, "peak": peak_memory(device), "translations": translations}
        print(json.dumps(answer), flush=True)


def peak_memory(device):
    """Return the GPU's peak memory in bytes, or without a GPU that of this process."""
    if device == "cuda":
        import torch

        return torch.cuda.max_memory_allocated()
    status = Path("/proc/self/status")
    if not status.exists():  # as on macOS, where the unit is a byte
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # On Linux getrusage would also count what the parent held when it forked.
    return next(1024 * int(line.split()[1]) for line in status.read_text().splitlines() if "VmHWM" in line)


class CTranslate2Client:
    """Pieces in, pieces out; it sorts and batches by itself."""

    def __init__(self, spec, number_format, workers, threads, batch):
        import ctranslate2

        names, decoding = spec["source_pieces"], spec["decoding"]
        self.sources = [[names[i] for i in ids] for ids in spec["sources"]]
        self.ids = {piece: i for i, piece in enumerate(spec["target_pieces"])}
        self.options = {"max_batch_size": batch, "batch_type": "examples", "max_input_length": 0}
        self.options |= {"length_penalty": decoding["length_penalty"], "max_decoding_length": decoding["max_length"]}
        folder = str(Path(spec["model"]) / "ctranslate2" / number_format)
        threading = {"inter_threads": workers, "intra_threads": threads}
        self.translator = ctranslate2.Translator(folder, compute_type=number_format, **threading)

    def translate(self, request):
        sources, options = self.sources[: request["sentences"]], {"beam_size": request["beam"], **self.options}
        calls = [[source] for source in sources] if request["batch"] == 1 else [sources]
        answers = [self.translator.translate_batch(call, return_scores=False, **options) for call in calls]
        return [answer for call in answers for answer in call]

    def counted(self, answers):
        ids = [[self.ids[piece] for piece in answer.hypotheses[0]] for answer in answers]
        return ids, sum(map(len, ids))


class Padded:
    """Batches of similar length, padded, in a toolkit that computes on torch tensors."""

    pad = PAD

    def __init__(self, spec):
        import torch

        self.spec, self.torch, self.device = spec, torch, torch.device(spec["device"])
        torch.manual_seed(1)
        self.model = self.build().to(self.device).eval()

    def translate(self, request):
        sources = self.spec["sources"][: request["sentences"]]
        order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
        results = [[] for _ in sources]
        for first in range(0, len(order), request["batch"]):
            rows = order[first : first + request["batch"]]
            for row, ids in zip(rows, self.batch([sources[i] for i in rows], request["beam"]), strict=True):
                results[row] = ids
        return results

    def batch(self, sources, beam):
        torch, decoding = self.torch, self.spec["decoding"]
        rows = [torch.tensor([SOS, *ids, EOS]) for ids in sources]
        padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=self.pad).to(self.device)
        longest = min(decoding["max_length"], math.ceil(decoding["max_length_ratio"] * padded.shape[1]) + 10)
        with torch.inference_mode():
            outputs = self.search(padded, beam, longest + 1)  # EOS counts
        return [ids[: ids.index(EOS)] if EOS in ids else ids[:longest] for ids in outputs]

    def counted(self, translations):
        return translations, sum(map(len, translations))


class Transformers(Padded):
    """generate() with its cache; sdpa attention."""

    def build(self):
        import transformers

        spec, shape = self.spec, self.spec["shape"]
        kind, config = {
            "post": (transformers.MarianMTModel, transformers.MarianConfig),
            "pre": (transformers.M2M100ForConditionalGeneration, transformers.M2M100Config),
        }[shape["norm"]]
        settings = {"pad_token_id": PAD, "bos_token_id": SOS, "eos_token_id": EOS, "decoder_start_token_id": SOS}
        settings["forced_eos_token_id"] = EOS  # Marian's default is our padding
        for side in ("encoder", "decoder"):
            settings[f"{side}_layers"] = shape[f"{side}_layers"]
            settings |= {f"{side}_attention_heads": shape["n_heads"], f"{side}_ffn_dim": shape["d_ff"]}
        settings |= {"vocab_size": len(spec["target_pieces"]), "d_model": shape["d_model"]}
        settings |= {"activation_function": shape["activation"], "scale_embedding": True}
        settings |= {"tie_word_embeddings": shape["tie_embeddings"], "attn_implementation": "sdpa"}
        model = kind(config(**settings, max_position_embeddings=2 * spec["decoding"]["max_length"] + 1000))
        self.fill(model, Weights(spec))
        return model

    def fill(self, model, weights):
        torch, post_norm = self.torch, self.spec["shape"]["norm"] == "post"
        encoder, decoder = model.model.encoder, model.model.decoder
        matrices = (encoder.embed_tokens, decoder.embed_tokens, model.lm_head)
        for module, tensor in zip(matrices, weights.embeddings(), strict=True):
            module.weight.data.copy_(tensor)
        for name, stack in (("encoder", encoder), ("decoder", decoder)):
            positions = stack.embed_positions
            # M2M100's table begins with the rows up to padding's, which stand for padding.
            table, first = (positions.weight.data, 0) if post_norm else (positions.weights, PAD + 1)
            table[first:].copy_(sinusoids(torch, len(table) - first, table.shape[1]))
            for number, layer in enumerate(stack.layers):
                names = ["self_attn", "encoder_attn"] if name == "decoder" else ["self_attn"]
                blocks = [getattr(layer, block) for block in names]
                attentions = [(a.q_proj, a.k_proj, a.v_proj, a.out_proj) for a in blocks]
                norms = [*(getattr(layer, f"{block}_layer_norm") for block in names), layer.final_layer_norm]
                weights.layer(f"{name}.{number}", attentions, (layer.fc1, layer.fc2), norms)
            if not post_norm:
                weights.into(f"{name}_norm", stack.layer_norm)
        weights.finish()

    def search(self, padded, beam, longest):
        options = {"num_beams": beam, "do_sample": False, "use_cache": True, "max_new_tokens": longest}
        if beam > 1:
            options |= {"early_stopping": True, "length_penalty": self.spec["decoding"]["length_penalty"]}
        outputs = self.model.generate(padded, attention_mask=(padded != PAD).long(), **options)
        return [ids[1:] for ids in outputs.tolist()]


class JoeyNMT(Padded):
    """Its modules as its configuration builds them; its `<unk>` is 0 and its padding 1, ours the other way round."""

    UNK, pad = 0, 1

    def build(self):
        from joeynmt.model import build_model
        from joeynmt.vocabulary import Vocabulary

        logging.disable(logging.INFO)
        spec, shape = self.spec, self.spec["shape"]
        names = {"unk_token": "<unk>", "pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
        numbers = {"unk_id": self.UNK, "pad_id": self.pad, "bos_id": SOS, "eos_id": EOS}
        special = SimpleNamespace(**names, **numbers, sep_token=None, sep_id=None, lang_tags=[])
        vocabulary = Vocabulary([str(i) for i in range(len(spec["target_pieces"]) - 4)], special)
        stack = {
            "type": "transformer",
            "num_heads": shape["n_heads"],
            "embeddings": {"embedding_dim": shape["d_model"], "scale": True},
            "hidden_size": shape["d_model"],
            "ff_size": shape["d_ff"],
            "layer_norm": shape["norm"],
            "activation": shape["activation"],
        }
        layers = {side: {**stack, "num_layers": shape[f"{side}_layers"]} for side in ("encoder", "decoder")}
        tied = shape["tie_embeddings"]
        model = build_model({**layers, "tied_embeddings": tied, "tied_softmax": tied}, vocabulary, vocabulary)
        self.fill(model, Weights(spec))
        return model

    def fill(self, model, weights):
        order = self.torch.arange(len(self.spec["target_pieces"]))
        order[[PAD, self.pad]] = order[[self.pad, PAD]]
        matrices = (model.src_embed.lut, model.trg_embed.lut, model.decoder.output_layer)
        for module, tensor in zip(matrices, weights.embeddings(), strict=True):
            module.weight.data.copy_(tensor[order])
        for name, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
            stack.pe.pe[0].copy_(sinusoids(self.torch, *stack.pe.pe.shape[1:]))
            for number, layer in enumerate(stack.layers):
                ends = layer.feed_forward
                if name == "encoder":
                    blocks, norms = [layer.src_src_att], [layer.layer_norm, ends.layer_norm]
                else:
                    blocks = [layer.trg_trg_att, layer.src_trg_att]
                    norms = [layer.x_layer_norm, layer.dec_layer_norm, ends.layer_norm]
                attentions = [(a.q_layer, a.k_layer, a.v_layer, a.output_layer) for a in blocks]
                weights.layer(f"{name}.{number}", attentions, (ends.pwff_layer[0], ends.pwff_layer[3]), norms)
            if stack.layer_norm is not None:
                weights.into(f"{name}_norm", stack.layer_norm)
        weights.finish()
        for module in model.modules():
            if isinstance(module, self.torch.nn.LayerNorm):
                module.eps = 1e-5  # ours; its own is smaller

    def search(self, padded, beam, longest):
        from joeynmt.batch import Batch
        from joeynmt.search import search

        lengths, rows = (padded != self.pad).sum(1), self.torch.arange(len(padded))
        batch = Batch(padded, lengths, None, None, None, rows, self.device, self.pad, EOS, is_train=False)
        outputs, _, _ = search(self.model, batch, longest, beam, self.spec["decoding"]["length_penalty"])
        return outputs.tolist()


class Weights:
    """Our tensors by name; each is taken once, so that one that has no place is noticed."""

    def __init__(self, spec):
        from safetensors.torch import load_file

        self.left = load_file(Path(spec["model"]) / "model.safetensors")

    def into(self, name, *modules):
        """Copy weight and bias of a layer; a joined matrix is split among several modules."""
        for kind in ("weight", "bias"):
            parts = self.left.pop(f"{name}.{kind}").chunk(len(modules))
            for module, part in zip(modules, parts, strict=True):
                getattr(module, kind).data.copy_(part)

    def embeddings(self):
        """Return the source's, the target's and the output matrix; tied ones are stored once, under the first name."""
        names = ("source_embedding.tokens.weight", "target_embedding.tokens.weight", "output.weight")
        first = self.left[names[0]]
        return [self.left.pop(name, first) for name in names]

    def layer(self, name, attentions, feed_forward, norms):
        """Copy an encoder or decoder layer: (q, k, v, out) of its attentions, both linear layers, and its norms."""
        query, key, value, out = attentions[0]
        self.into(f"{name}.self_attention.in_proj", query, key, value)
        self.into(f"{name}.self_attention.out_proj", out)
        for query, key, value, out in attentions[1:]:
            self.into(f"{name}.cross_attention.q_proj", query)
            self.into(f"{name}.cross_attention.kv_proj", key, value)
            self.into(f"{name}.cross_attention.out_proj", out)
        self.into(f"{name}.feed_forward.up", feed_forward[0])
        self.into(f"{name}.feed_forward.down", feed_forward[1])
        for number, norm in enumerate(norms):
            self.into(f"{name}.residuals.{number}.norm", norm)

    def finish(self):
        if self.left:
            raise SystemExit(f"decoding_peers: no place for the tensor {min(self.left)}")


def sinusoids(torch, length, width):
    """Return our position table: sine and cosine interleaved."""
    positions = torch.arange(length, dtype=torch.float64)[:, None]
    angles = positions * torch.exp(torch.arange(0, width, 2, dtype=torch.float64) * (-math.log(10000.0) / width))
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1).float()


def main():
    name, spec_path, *setting = sys.argv[1:]
    spec = json.loads(Path(spec_path).read_text(encoding="utf-8"))
    if name == "ctranslate2":
        serve(CTranslate2Client(spec, *json.loads(setting[0])), "cpu")
    else:
        shape = spec["shape"]
        usual = shape["positions"] == "sinusoidal" and shape["activation"] in ("relu", "gelu") and shape["bias"]
        if not (usual and spec["shared_vocabulary"]):
            needed = "a shared vocabulary, sinusoidal positions, relu or gelu, and biases"
            raise SystemExit(f"decoding_peers: {name} can only be given models with {needed}")
        serve({"transformers": Transformers, "joeynmt": JoeyNMT}[name](spec), spec["device"])


if __name__ == "__main__":
    main()
