"""Guided alignment: its loss, its gradients on every path of a step, and a run from alignments to a translation."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor

from command import mt
from mt.data.batching import Batch, BatchStream
from mt.data.guided_alignment import Alignments, write_alignments
from mt.model.packing import Packing
from mt.model.transformer import alignment_layer
from mt.training.step import TrainStep
from resume_helpers import events, run_of, train, weights
from training_helpers import Parts, assert_equal

LAYERS = "model={d_model: 16, n_heads: 2, d_ff: 32, encoder_layers: 1, decoder_layers: 3, dropout: 0.0, norm: pre}"
GUIDED = "training.guided_alignment=0.5"


def batches(parts: Parts, number: int = 3) -> list[Batch]:
    """Aligned batches, padded on both sides."""
    write_alignments(parts.corpus, parts.tokenizers, parts.folder / "alignments", "key")
    alignments = Alignments.open(parts.folder / "alignments", parts.tokenizers)
    stream = BatchStream(parts.corpus, 200, seed=1, alignments=alignments)
    found = [stream.next() for _ in range(20)]
    padded = [b for b in found if (b.tgt_out == 0).any() and (b.src_tokens == 0).any() and b.aligned is not None]
    assert padded[0].aligned is not None
    assert padded[0].aligned.any()
    return padded[:number]


def gradients(parts: Parts, batches: list[Batch], *changes: str, pieces: int = 1) -> tuple[Tensor, list[Tensor]]:
    parts.configure(LAYERS, *changes)
    parts.model.zero_grad()
    step = TrainStep(parts.config, parts.model)
    step.pieces = pieces
    sums = step.accumulate_gradients(batches, 0).sums
    return sums, [p.grad.clone() for p in parts.model.parameters()]


def plain_loss(parts: Parts, batch: Batch) -> Tensor:
    """The loss, link by link, from the weights that attention maps show."""
    model, found = parts.model, []
    layer = model.decoder[alignment_layer(3)].cross_attention
    hook = layer.register_forward_hook(lambda module, inputs, _: found.append(module.weights(*inputs)[:, 0]))
    src_tokens, tgt_in = torch.from_numpy(batch.src_tokens), torch.from_numpy(batch.tgt_in)
    model.states(src_tokens, tgt_in, Packing.of(src_tokens), Packing.of(tgt_in))
    hook.remove()
    assert batch.aligned is not None
    loss = torch.zeros(())
    for row, aligned in enumerate(batch.aligned):
        for position, linked in enumerate(aligned):
            for place in linked.nonzero()[0]:
                loss = loss - found[0][row, position, place].log() / linked.sum()
    return loss


def test_the_loss_is_the_cross_entropy_of_the_first_heads_weights(tiny: Path) -> None:
    parts = Parts(tiny, LAYERS)
    [batch] = batches(parts, 1)
    sums, with_it = gradients(parts, [batch], GUIDED)
    unguided, without = gradients(parts, [replace(batch, aligned=None)], GUIDED)
    parts.model.zero_grad()
    loss = plain_loss(parts, batch)
    (0.5 * loss / batch.n_tgt).backward()
    torch.testing.assert_close(sums, torch.stack([unguided[0], unguided[1], loss.detach()]), rtol=1e-4, atol=0)
    assert unguided[2] == 0
    own = [p.grad if p.grad is not None else torch.zeros_like(p) for p in parts.model.parameters()]
    assert_equal(with_it, [a + b for a, b in zip(without, own, strict=True)])


@pytest.mark.parametrize(
    ("change", "pieces"),
    [
        ("training.log_every=1", 2),
        ("training.recompute=true", 1),
        pytest.param("training.compile=true", 1, marks=pytest.mark.slow),
        ("training.r_drop=1.0", 1),
    ],
    ids=["pieces", "recompute", "compile", "r_drop"],
)
def test_every_path_of_a_step_gives_the_same(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, change: str, pieces: int
) -> None:
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager", fullgraph=True))
    parts = Parts(tiny, LAYERS)
    some = batches(parts)
    plain_sums, plain = gradients(parts, some, GUIDED)
    sums, found = gradients(parts, some, GUIDED, change, pieces=pieces)
    torch.testing.assert_close(sums, plain_sums, rtol=1e-4, atol=0)
    if "r_drop" not in change:
        assert_equal(found, plain)


def test_bf16_trains(tiny: Path) -> None:
    parts = Parts(tiny, LAYERS)
    some = batches(parts)
    parts.configure(LAYERS, GUIDED)
    steps = (TrainStep(parts.config, parts.model, precision=precision) for precision in ("fp32", "bf16"))
    exact, found = (step.accumulate_gradients(some, 0).sums for step in steps)
    torch.testing.assert_close(found, exact, rtol=0.02, atol=0)


def test_a_run_is_guided_and_resumes_exactly(tiny: Path) -> None:
    last = "training.final_weights=last"
    train(tiny, GUIDED, last)
    losses = [event["alignment_loss"] for event in events(tiny) if event["event"] == "train"]
    assert losses[-1] < losses[0]
    whole, folder = weights(tiny), run_of(tiny).alignments
    content = {path.name: path.read_bytes() for path in folder.iterdir()}
    manifest = json.loads(run_of(tiny).model.manifest.read_bytes())
    assert manifest["alignment"] == {"layer": 0, "heads": 1}
    line = mt("translate", "--alignment", "a b c", cwd=tiny).stdout
    assert " ||| " in line

    run_of(tiny).root.rename(tiny / "whole")
    train(tiny, GUIDED, last, "training.max_steps=12")
    (run_of(tiny).alignments / "links.npy").unlink()
    train(tiny, GUIDED, last)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == content
    assert weights(tiny) == whole


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("model={architecture: decoder_only, d_model: 16, n_heads: 2}", "a decoder-only model does not have apart"),
        ("training.bidirectional_epochs=1", "reversed pairs have no word alignment"),
        ("training.cuda_graphs=true", "graphs need the plain loss"),
    ],
)
def test_what_cannot_be_guided_is_refused(tiny: Path, change: str, sentence: str) -> None:
    done = mt("train", "--config", "tiny.yaml", "--set", GUIDED, "--set", change, cwd=tiny, code=2)
    assert sentence in done.stderr
