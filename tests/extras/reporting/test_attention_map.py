"""`mt translate --attention` and `--alignment`."""

import json
import warnings
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import torch

from command import mt
from conftest import into
from model_helpers import lively_model
from mt.bundle.load_translator import open_model
from mt.data.tokenizer import EOS, SOS
from mt.decoding.attention_weights import Attention, read_attention, word_pairs
from mt.decoding.engine import EngineChoice
from mt.extras.reporting.attention_map import attention_image, attention_page, map_element
from mt.model.attention import attend, attention_mask, split_heads
from mt.model.decoder_state import KeyValues
from mt.model.packing import Packing
from mt.storage.run_dir import RunDir


def test_weights_equal_those_of_the_fused_kernel() -> None:
    """softmax(q k') v with our weights equals torch's kernel, padding included."""
    model = lively_model(vocab=50).eval()
    layer = model.decoder[0].cross_attention
    src = Packing.of(torch.tensor([[2, 7, 8, 9, 3], [2, 7, 3, 0, 0]]))
    tgt = Packing.of(torch.tensor([[2, 11, 12], [2, 13, 0]]))
    torch.manual_seed(1)
    memory, x = torch.randn(8, layer.q_proj.in_features), torch.randn(5, layer.q_proj.in_features)
    projected = layer.project(memory, src)
    weights = layer.weights(x, tgt, memory, src)
    assert weights.shape == (2, layer.n_heads, 3, 5)
    assert torch.allclose(weights.sum(dim=-1), torch.ones(2, layer.n_heads, 3))
    assert weights[1, :, :, 3:].max() == 0
    heads = attend(
        split_heads(tgt.unpack(layer.q_proj(x)), layer.n_heads), projected, attention_mask(src.pad), False, 0.0
    )
    assert torch.allclose((weights @ projected.values).transpose(1, 2).flatten(2), heads, atol=1e-5)
    assert isinstance(projected, KeyValues)


def test_attention_of_all_layers_and_heads_is_read(two_languages: Path) -> None:
    opened = open_model(RunDir(two_languages / "runs" / "two").model, EngineChoice("torch"))
    [[candidate], [empty]] = opened.translator.to("xx").translate(["a b c d", ""], opened.settings.search)
    assert opened.model is not None
    [attention] = read_attention(opened.model, opened.tokenizers, candidate)
    assert attention.source == [SOS, "<2xx>", "▁a", "▁b", "▁c", "▁d", EOS]
    assert attention.target[-1] == EOS
    layers, heads, target, source = attention.weights.shape
    assert (layers, heads, target, source) == (1, 2, len(attention.target), 7)
    assert torch.allclose(attention.weights.sum(dim=-1), torch.ones(1, 2, target))
    assert read_attention(opened.model, opened.tokenizers, empty) == []


def attention_of(source: list[str], target: list[str], *looks: tuple[int, int, float]) -> Attention:
    """Build an attention of two layers, the first with given weights: (target, source, weight)."""
    weights = torch.full((2, 1, len(target), len(source)), 0.01)
    weights[1] = torch.rand(1, len(target), len(source))
    for t, s, weight in looks:
        weights[0, 0, t, s] = weight
    return Attention(source, target, weights)


def test_words_are_aligned_by_all_their_tokens() -> None:
    source = [SOS, "<2xx>", "▁the", "▁play", "ing", "▁", "(", EOS]
    target = ["▁spiel", "end", "▁die", EOS]
    looks = [(0, 3, 0.3), (0, 4, 0.3), (1, 2, 0.5), (2, 2, 0.4), (2, 0, 0.9), (3, 7, 0.9)]
    found = attention_of(source, target, *looks)
    assert word_pairs([found]) == [(0, 1), (1, 0)]
    assert word_pairs([found, found]) == [(0, 1), (1, 0), (3, 3), (4, 2)]
    assert word_pairs([]) == []
    assert word_pairs([attention_of([SOS, EOS], [EOS])]) == []


def test_alignments_of_a_copying_model_are_monotonic(two_languages: Path) -> None:
    command = ("translate", "--to", "xx", "--alignment")
    first, empty, last, _ = mt(*command, "--", "a b c", "", "j", cwd=two_languages).stdout.split("\n")
    text, pairs = first.split(" ||| ")
    assert text == into("xx", "a b c")
    assert sorted(pair.split("-")[1] for pair in pairs.split()) == ["0", "1", "2"]
    assert empty == ""
    assert last == f"{into('xx', 'j')} ||| 0-0"
    assert json.loads(mt(*command, "--format", "jsonl", "j", cwd=two_languages).stdout)["alignment"] == "0-0"


@pytest.mark.parametrize("by_head", [False, True])
def test_images_are_valid(by_head: bool) -> None:
    attention = attention_of([SOS, "▁a$b$", "<&>", "▁\U0001f600", EOS], ["▁x", EOS], (0, 1, 0.9))
    assert attention_image(attention, "png", by_head).startswith(b"\x89PNG")
    drawing = attention_image(attention, "svg", by_head)
    ElementTree.fromstring(drawing.decode())
    assert (b"layer 2" in drawing) == by_head or b"<text" not in drawing
    assert len(attention_image(attention_of(["▁a"] * 300, ["▁b"] * 300), "png")) > 1000


def test_characters_that_the_font_lacks_are_text_in_svg_and_noticed_in_png(notices: list[str]) -> None:
    attention = attention_of(["▁我$", "▁चाय", EOS], ["▁tea", EOS])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawing = attention_image(attention, "svg").decode()
        assert notices == []
        attention_image(attention, "png")
    texts = [text.text for text in ElementTree.fromstring(drawing).iter("{http://www.w3.org/2000/svg}text")]
    assert texts == ["我$", "चाय", EOS, "tea", EOS]
    assert notices == ["the font of images lacks some of these characters; write a .html or .svg file instead"]


def test_a_page_contains_its_tokens_as_text() -> None:
    attention = attention_of([SOS, "▁</script>", '"&', EOS], ["▁x", EOS], (0, 1, 0.9))
    content = attention_page([attention, attention])
    assert content.count("</script>") == 1
    assert "http" not in content


@pytest.mark.parametrize("before", [[], ["<2xx>"], [SOS, "<2xx>"]], ids=len)
def test_the_menu_has_the_words_of_each_text(before: list[str]) -> None:
    page = ElementTree.fromstring(map_element([attention_of([*before, "▁a", "▁b", "c", EOS], ["▁x", EOS])]))
    [shown] = json.loads(page.attrib["data-maps"])
    assert shown["text"] == "a bc"


def test_the_suffix_chooses_the_format(two_languages: Path, tmp_path: Path) -> None:
    model = ("--model", two_languages / "runs" / "two", "--to", "yy")
    for name in ("a.png", "a.SVG", "a.html"):
        done = mt("translate", *model, "--attention", name, "a b c", cwd=tmp_path)
        assert done.stdout == into("yy", "a b c") + "\n"
        assert (tmp_path / name).stat().st_size > 1000
    mt("translate", *model, "--attention", "two.html", "--", "a b", "", "c", cwd=tmp_path)
    assert (tmp_path / "two.html").read_text().count("&quot;source&quot;") == 2
    mt("translate", *model, "--attention", "h.png", "--by-head", "a b c", cwd=tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--attention", "a.pdf", "a"), "must end in .png, .svg, .html"),
        (("--attention", "a.html", "--by-head", "a"), "--by-head is for images"),
        (("--by-head", "a"), "--by-head belongs to --attention"),
        (("--attention", "a.svg", "--output", "a.svg", "a"), "--attention a.svg: --output is the same file"),
        (("--attention", "a.png", "a", "b"), "an image shows one text, and there are 2"),
        (("--attention", "a.png", ""), "a text without letters and digits has no attention"),
        (("--attention", "a.png", "…"), "a text without letters and digits has no attention"),
        (("--attention", "a.png", "--engine", "ctranslate2", "a"), "--attention and --engine ctranslate2 contradict"),
        (("--alignment", "--engine", "torch-graphs", "--device", "cpu", "a"), "torch-graphs"),
        (("--alignment", "--n-best", "2", "a"), "--alignment and --n-best contradict"),
        (("--alignment", "--model", "x", "--model", "y", "a"), "--alignment and several models contradict"),
    ],
)
def test_impossible_requests_are_refused(two_languages: Path, arguments: tuple[str, ...], message: str) -> None:
    done = mt("translate", "--to", "xx", *arguments, cwd=two_languages, code=2)
    assert message in done.stderr
    assert not done.stdout, "it was translated before it was refused"
