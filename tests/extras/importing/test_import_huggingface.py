"""Import of MarianMT, M2M-100 and mBART: the same logits and translations as transformers', by both engines."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoTokenizer

from engine_helpers import ENGLISH, GERMAN, sentences
from import_helpers import m2m_100, marian, mbart, nllb, teach
from mt.api.conversion import import_model
from mt.bundle.load_translator import OpenedModel, open_model
from mt.data.sentence_format import framed
from mt.data.tokenizer import EOS_ID, PAD_ID, SOS_ID, SPECIALS
from mt.decoding.engine import EngineChoice, SearchOptions
from mt.extras.importing.huggingface import read_plan
from mt.storage.run_dir import ModelDir

FAMILIES: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "marian": (marian, {}),
    "marian-separate-vocabularies": (partial(marian, separate=True), {}),
    "marian-several-targets": (partial(marian, tags=("fra", "deu")), {"target_langs": ["deu", "fra"]}),
    "marian-unscaled-gelu": (partial(marian, activation_function="gelu", scale_embedding=False), {}),
    "m2m_100": (m2m_100, {"source_lang": "en", "target_langs": ["de", "fr"]}),
    "nllb": (nllb, {"source_lang": "eng_Latn", "target_langs": ["deu_Latn"]}),
    "nllb-legacy": (partial(nllb, legacy=True), {"source_lang": "eng_Latn", "target_langs": ["deu_Latn"]}),
    "mbart-50": (mbart, {"source_lang": "en_XX", "target_langs": ["de_DE"]}),
    "mbart-untied": (partial(mbart, tie_word_embeddings=False), {"source_lang": "en_XX", "target_langs": ["de_DE"]}),
    "mbart": (partial(mbart, first=True), {"source_lang": "en_XX", "target_langs": ["de_DE"]}),
}


@dataclass
class Imported:
    """A model of transformers, its import, and the row of theirs for each of our ids."""

    theirs: Any
    folder: ModelDir
    slow: OpenedModel
    rows: tuple[Tensor, Tensor]

    def to_theirs(self, batch: Tensor, side: int, start: int) -> Tensor:
        """Map our ids (B, L), whose first may be SOS, to theirs."""
        rows = self.rows[side].clone()
        rows[SOS_ID], rows[PAD_ID] = start, self.theirs.config.pad_token_id
        return rows[batch]

    def fast(self) -> OpenedModel:
        return open_model(self.folder, EngineChoice("ctranslate2"))


def made(folder: Path, make: Callable[..., Any], languages: dict[str, Any], steps: int = 0) -> Imported:
    theirs = make(folder / "theirs")
    sources = [languages["source_lang"]] if "source_lang" in languages else []
    plan = read_plan(folder / "theirs", "x", (sources, languages.get("target_langs", ())))
    teach(theirs, folder / "theirs", plan, steps)
    import_model(folder / "theirs", folder / "ours", **languages)
    slow = open_model(ModelDir(folder / "ours"), EngineChoice("torch"))
    return Imported(theirs, ModelDir(folder / "ours"), slow, (plan.source_rows, plan.target_rows))


def batches(imported: Imported, lengths: list[int], seed: int = 0) -> tuple[list[list[int]], Tensor]:
    """Return random source ids with their tags, and as a padded batch with special tokens."""
    translator = imported.slow.translator.to(imported.slow.settings.target_langs[0])
    ids = sentences(lengths, imported.slow.tokenizers.source.vocab_size, seed)
    ids = [translator.tags.source(row) for row in ids]
    rows = [torch.tensor(framed(row, imported.slow.settings.source_format)) for row in ids]
    return ids, torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD_ID)


@pytest.fixture(params=FAMILIES.items(), ids=lambda item: item[0], scope="module")
def imported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Imported:
    name, (make, languages) = request.param
    return made(tmp_path_factory.mktemp(name), make, languages)


def start_of(imported: Imported) -> int:
    return int(imported.theirs.config.decoder_start_token_id)


def their_logits(imported: Imported, src_tokens: Tensor, tgt_in: Tensor) -> Tensor:
    """Return transformers' logits of our ids but PAD and SOS."""
    source = imported.to_theirs(src_tokens, 0, -1)
    target = imported.to_theirs(tgt_in, 1, start_of(imported))
    with torch.no_grad():
        mask = (src_tokens != PAD_ID).long()
        return imported.theirs(input_ids=source, attention_mask=mask, decoder_input_ids=target).logits


def random_targets(imported: Imported, rows: int) -> Tensor:
    targets = sentences([9] * rows, imported.slow.tokenizers.target.vocab_size, seed=5)
    return torch.tensor([[SOS_ID, *row] for row in targets])


def test_logits_of_torch(imported: Imported) -> None:
    _, src_tokens = batches(imported, [7, 1, 12])
    tgt_in = random_targets(imported, 3)
    ours = imported.slow.model(src_tokens, tgt_in)
    kept = [i for i in range(ours.shape[-1]) if i not in (PAD_ID, SOS_ID)]
    theirs = their_logits(imported, src_tokens, tgt_in)[..., imported.rows[1][kept]]
    assert theirs.std() > 0.5
    assert (ours[..., kept] - theirs).abs().max() < 1e-4


def test_log_probabilities_of_ctranslate2(imported: Imported) -> None:
    ids, src_tokens = batches(imported, [7, 1, 12])
    tgt_in = random_targets(imported, 3)
    logits = their_logits(imported, src_tokens, tgt_in)[..., imported.rows[1]].double()
    logits[..., SOS_ID] = -torch.inf
    log_probs = logits.log_softmax(-1)
    following = torch.cat([tgt_in[:, 1:], torch.full((3, 1), EOS_ID)], dim=1)
    expected = log_probs.gather(-1, following[:, :, None])[..., 0]
    pair, translator = imported.slow.tokenizers, imported.fast().translator.engine._translator
    pieces = [pair.source.tokens(row) for row in ids], [pair.target.tokens(row[1:]) for row in tgt_in.tolist()]
    found = [result.log_probs for result in translator.score_batch(*pieces, max_input_length=0)]
    assert (torch.tensor(found) - expected).abs().max() < 1e-4


def generated(imported: Imported, src_tokens: Tensor, options: SearchOptions, first: int | None) -> list[list[int]]:
    """Search with transformers by the rules of `mt.decoding`, and return our ids."""
    rows = imported.rows[1]
    of_ours = {row: i for i, row in enumerate(rows.tolist()) if i != SOS_ID}
    forbidden = {rows[i].item() for i in (PAD_ID, SPECIALS.index("<unk>"))}
    forbidden |= {row for row in range(imported.theirs.lm_head.out_features) if row not in of_ours}
    found = imported.theirs.generate(
        input_ids=imported.to_theirs(src_tokens, 0, -1),
        attention_mask=(src_tokens != PAD_ID).long(),
        num_beams=options.beam_size,
        length_penalty=options.length_penalty,
        early_stopping=True,
        max_length=options.max_length + 2,
        suppress_tokens=sorted(forbidden),
        renormalize_logits=True,
        forced_bos_token_id=None if first is None else rows[first].item(),
        forced_eos_token_id=None,
        bad_words_ids=None,
        pad_token_id=imported.theirs.config.pad_token_id,
    )
    eos = rows[EOS_ID].item()
    results = []
    for row in found[:, 1:].tolist():
        end = row.index(eos) if eos in row else len(row)
        results.append([of_ours[token] for token in row[:end]])
    return results


def test_text_becomes_the_same_tokens(imported: Imported) -> None:
    """Also text with characters that the tokenizer does not know, and with the names of special tokens."""
    settings, pair = imported.slow.settings, imported.slow.tokenizers
    translator = imported.slow.translator.to(settings.target_langs[0])
    theirs = AutoTokenizer.from_pretrained(imported.folder.root.parent / "theirs", src_lang=settings.source_lang)
    tag = ">>deu<<" if "deu" in settings.target_langs else ""
    for text in (*ENGLISH, "Two dogs!", "The  old ☃ is on the 日本.", "A “dog” runs\u00a0over"):
        ours = framed(translator.tags.source(pair.source.encode(text)), settings.source_format)
        assert imported.rows[0][ours].tolist() == theirs(f"{tag}{text}")["input_ids"]
    target = pair.target.encode(GERMAN[0])
    assert pair.target.decode(target) == theirs.decode(imported.rows[1][target], skip_special_tokens=True)


SLOW = (
    "marian-several-targets marian-separate-vocabularies m2m_100 nllb nllb-legacy mbart mbart-50 mbart-untied".split()
)


@pytest.mark.parametrize(
    "family",
    [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in FAMILIES if "gelu" not in name],
)
def test_translations(family: str, tmp_path: Path) -> None:
    """Of a model that has learned a little, so that its translations differ and some are doubtful."""
    imported = made(tmp_path, *FAMILIES[family], steps=400 if family in ("m2m_100", "nllb", "nllb-legacy") else 250)
    translator = imported.slow.translator.to(imported.slow.settings.target_langs[0])
    first = translator.tags.first
    ids, src_tokens = batches(imported, [1 + i % 9 for i in range(240)], seed=3)
    for penalty in (1.0, 0.3):
        options = SearchOptions(5, 1, penalty, max_length=40, max_length_ratio=100.0)
        expected = generated(imported, src_tokens, options, first)
        assert len(set(map(tuple, expected))) > 30
        # Not those without an end, nor empty ones behind a tag, which our engines give only where nothing is likelier.
        kept = [row for row, found in enumerate(expected) if int(first is not None) < len(found) <= options.max_length]
        assert len(kept) > 200
        for engine in (imported.slow.translator.engine, imported.fast().translator.engine):
            prefixes = [] if first is None else [[first]] * len(ids)
            found = [hypotheses[0].ids for hypotheses in engine.translate(ids, options, prefixes)]
            assert sum(found[row] == expected[row] for row in kept) >= 0.995 * len(kept)
