"""Sentence formats: tags and special tokens in training batches, in search and in scores."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from data_helpers import encode_text, whole_epoch, write_lines
from engine_helpers import ENGLISH, GERMAN, configured
from model_helpers import scramble
from mt.api.translation import Translator as LoadedTranslator
from mt.bundle.load_translator import OpenedModel
from mt.bundle.model_folder import build_model
from mt.data.augmented_corpus import AugmentedCorpus
from mt.data.batching import BatchStream, assemble
from mt.data.encode import encode_corpus, read_counts
from mt.data.glossary import Glossary
from mt.data.sentence_format import SOURCE_FORMATS, SentenceFormat, Tags, framed
from mt.data.subword_sampling import BpeDropout, SampledCorpus
from mt.data.token_store import EncodedCorpus
from mt.data.tokenizer import EOS, EOS_ID, PAD_ID, SOS_ID, BpeTokenizer
from mt.data.tokenizer_kinds import TokenizerPair
from mt.decoding.attention_weights import aligning_weights
from mt.decoding.engine import SearchOptions
from mt.decoding.scoring import score_pairs
from mt.decoding.search import log_probs_of
from mt.decoding.settings import TranslationSettings
from mt.decoding.torch_engine import TorchEngine
from mt.decoding.translator import Translator
from mt.errors import InputError

TOKENIZER = BpeTokenizer.train([*ENGLISH, *GERMAN] * 3, 320, ("en", "de"))
PAIR = TokenizerPair(TOKENIZER, TOKENIZER)
EN, DE = TOKENIZER.tags["en"], TOKENIZER.tags["de"]


@pytest.mark.parametrize(
    ("source", "target_tag", "expected", "first"),
    [
        ("<s> text </s>", "source", [SOS_ID, DE, 9, EOS_ID], None),
        ("text </s>", "source", [DE, 9, EOS_ID], None),
        ("text </s>", "target", [9, EOS_ID], DE),
        ("lang text </s>", "target", [EN, 9, EOS_ID], DE),
        ("lang text </s>", "source", [EN, DE, 9, EOS_ID], None),
        ("text </s> lang", "target", [9, EOS_ID, EN], DE),
        ("text </s> lang", "none", [9, EOS_ID, EN], None),
    ],
)
def test_the_tokens_of_a_source(source: str, target_tag: str, expected: list[int], first: int | None) -> None:
    tags = SentenceFormat(source, target_tag, "en").tags(PAIR, "de")
    assert framed(tags.source([9]), source) == expected
    assert tags.target([9]) == [*([] if first is None else [first]), 9]


def test_tags_that_the_tokenizer_lacks() -> None:
    assert SentenceFormat().tags(PAIR, "fr") == Tags()
    for form in (SentenceFormat("lang text </s>", "none", "fr"), SentenceFormat("text </s>", "target", "en")):
        with pytest.raises(InputError, match="has no tag for fr"):
            form.tags(PAIR, "fr")
    with pytest.raises(InputError, match="has no tag for fr"):
        SentenceFormat().tags(PAIR, "fr", required=True)


@pytest.mark.parametrize("source", SOURCE_FORMATS)
def test_training_reads_what_translation_reads(tmp_path: Path, source: str) -> None:
    tags = SentenceFormat(source, "target", "en").tags(PAIR, "de")
    lines = ["A dog.", "Two men are talking.", "grass"]
    corpus = replace(encode_text(tmp_path, lines, GERMAN, PAIR, parts=[(3, tags)]), source_format=source)
    batch = assemble(corpus, np.arange(3))
    rows = [framed(tags.source(TOKENIZER.encode(line)), source) for line in lines]
    longest = max(map(len, rows))
    assert batch.src_tokens.tolist() == [row + [PAD_ID] * (longest - len(row)) for row in rows]
    assert corpus.lengths()[0].tolist() == [*map(len, rows)]
    assert batch.n_src == BatchStream(corpus, 100, 1).next().n_src == sum(map(len, rows))
    most = 5 - len(framed(tags.source([]), source))
    cut = assemble(corpus, np.arange(2), max_length=5)
    assert cut.src_tokens.tolist() == [framed(tags.source(TOKENIZER.encode(line)[:most]), source) for line in lines[:2]]
    assert batch.tgt_in[:, :2].tolist() == [[SOS_ID, DE]] * 3
    target = [DE, *TOKENIZER.encode(GERMAN[0]), EOS_ID]
    assert batch.tgt_out[0, : len(target)].tolist() == target


@pytest.mark.parametrize("source", SOURCE_FORMATS)
def test_the_longest_pairs_that_are_kept(tmp_path: Path, source: str) -> None:
    form = SentenceFormat(source, "source" if source == "text </s>" else "none", "en")
    tags, line = form.tags(PAIR, "de"), "A dog and two men are talking."
    text = write_lines(tmp_path / "source", [line]), write_lines(tmp_path / "target", ["grass"])
    longest = len(framed(tags.source(TOKENIZER.encode(line)), source))
    for limit, kept in ((longest, [1]), (longest - 1, [0])):
        encoded = tmp_path / str(limit)
        encode_corpus(text, PAIR, encoded, "key", limit, [(1, tags)], source_format=source)
        assert read_counts(encoded / "counts.json").kept == kept
    corpus = EncodedCorpus.open(tmp_path / str(longest), source)
    sampled = SampledCorpus(corpus, PAIR, [BpeDropout(t, 0.3) for t in PAIR], 1, 1000, tmp_path).in_epoch(0)
    shouted = whole_epoch(AugmentedCorpus(corpus, PAIR, {"upper_case": 1.0}, 1, 1000, [("en", "de")]))
    for one in (sampled, shouted, sampled.select(np.arange(1))):
        assert one.lengths()[0].tolist() == [(assemble(one, np.arange(1)).src_tokens != PAD_ID).sum()] > [longest]
    for limit, is_changed in ((shouted.lengths()[0][0], True), (shouted.lengths()[0][0] - 1, False)):
        found = whole_epoch(AugmentedCorpus(corpus, PAIR, {"upper_case": 1.0}, 1, limit, [("en", "de")]))
        assert (found.lengths()[0] > longest) == is_changed


@pytest.mark.parametrize("source", SOURCE_FORMATS)
def test_a_first_token_costs_nothing_and_is_in_no_translation(source: str) -> None:
    config = configured(f"model.source_format={source}", "model.target_tag=target")
    settings = TranslationSettings.of(config)
    assert settings.sentence_format == SentenceFormat.of(config) == SentenceFormat(source, "target", "en")
    model = build_model(config, PAIR)
    scramble(model)
    translator = Translator(TorchEngine(model.eval(), 4096), PAIR, settings)

    def log_prob(line: str, target: list[int]) -> float:
        sources = torch.tensor([framed(translator.tags.source(TOKENIZER.encode(line)), source)])
        log_probs = log_probs_of(model(sources, torch.tensor([[SOS_ID, DE, *target]])))[0, 1:]
        return float(log_probs.detach()[range(len(target) + 1), [*target, EOS_ID]].sum())

    for line in ENGLISH:
        [found] = translator.translate([line], SearchOptions(4, 4, max_length=9))
        assert len(found) == 4
        for candidate in found:
            [part] = candidate.parts
            assert DE not in part.target[:1]
            assert candidate.log_prob == pytest.approx(log_prob(line, list(part.target)), abs=1e-4)
            assert candidate.score == pytest.approx(candidate.log_prob / (len(part.target) + 2))
        begun = translator.translate([line], SearchOptions(4, 4, max_length=20), prefixes=["Ein Hu"])[0]
        for candidate in begun:
            [part] = candidate.parts
            assert candidate.text.startswith("Ein Hu")
            assert DE not in part.target
            assert log_prob(line, list(part.target)) < candidate.log_prob < 0  # of the rest
        having = replace(translator, glossary=Glossary(None, ["[Th]"]))
        for candidate in having.translate([line], SearchOptions(4, 1, max_length=20))[0]:
            assert all(re.search(rf"\b{letter}\b", candidate.text) for letter in {"T", "h"} & {*line})
            assert candidate.log_prob == pytest.approx(log_prob(line, list(candidate.parts[0].target)), abs=1e-3)
    [scored] = score_pairs(model, PAIR, translator.tags, settings, [(ENGLISH[0], GERMAN[0])])
    assert scored is not None
    assert scored.log_prob == pytest.approx(log_prob(ENGLISH[0], TOKENIZER.encode(GERMAN[0])), abs=1e-3)


@pytest.mark.parametrize("is_guided", [False, True])
def test_attention_is_that_of_the_target_tag_and_the_translation(is_guided: bool) -> None:
    guided = f"training.guided_alignment={0.1 * is_guided}"
    config = configured("model.target_tag=target", "decoding.max_length=9", guided)
    settings = TranslationSettings.of(config)
    model = build_model(config, PAIR)
    scramble(model)
    translator = Translator(TorchEngine(model.eval(), 4096), PAIR, settings)
    loaded = LoadedTranslator(OpenedModel(translator, settings, "torch", PAIR, model), Path("model"))
    [[candidate]] = translator.translate(ENGLISH[:1], replace(settings.search, attention=True))
    [part] = candidate.parts
    result = loaded.translate(ENGLISH[0], details=True, attention=True)
    assert result.text == candidate.text
    [attention] = result.attention
    assert attention.target == [*TOKENIZER.tokens([DE, *part.target]), EOS]
    found = aligning_weights(attention.weights, is_guided)[1 + is_guided :, 1 : len(part.source) + 1]
    assert torch.allclose(found, torch.tensor(part.attention), atol=1e-6)
