"""The README of a model folder."""

from collections.abc import Mapping
from typing import Any

from mt.config import Config


def direction_options(config: Config) -> str:
    """Return the options that choose a direction in an example of `mt translate`, with a space behind each."""
    data = config.data
    (source, target), several = data.pairs[0], (len(data.source_lang) > 1, len(data.target_lang) > 1)
    return f"--from {source} " * several[0] + f"--to {target} " * several[1]


def origin_of(facts: Mapping[str, Any], trained: str) -> str:
    """Return the sentence `trained`, or for an imported model its origin and licence."""
    if "imported" not in facts:
        return trained
    licence = f"Its licence is {facts['license']}." if "license" in facts else "Its model card names no licence."
    return f"A machine-translation Transformer, imported from {facts['imported']} by `mt`. {licence}"


def licence_header(facts: Mapping[str, Any]) -> str:
    """Return front matter with the licence of an imported model; empty without one."""
    licence = facts.get("license")
    if not licence:
        return ""
    return f"---\nlicense: {f'[{licence}]' if ',' in licence else licence}\n---\n\n"


def model_card(config: Config, facts: Mapping[str, Any], is_converted: bool) -> str:
    """Describe a model in Markdown, with its manifest's facts.

    `weights`, `steps`, `scores` and `formats_table` come from training, `imported` and `license` from an import.
    """
    steps, weights = facts.get("steps", 0), facts.get("weights", "unknown")
    scores, formats = facts.get("scores"), facts.get("formats_table")
    shape = config.model
    result = f"Scores on the test set, by sacreBLEU:\n\n```\n{scores}\n```" if scores else "No test set was scored."
    if formats:
        result += f"\n\nNumber formats of the CTranslate2 engine, on the validation set:\n\n```\n{formats}\n```"
    stack = f"{shape.encoder_layers} encoder and {shape.decoder_layers} decoder layers"
    ctranslate2 = """
`ctranslate2/` (the same weights for the CTranslate2 library, in float32 and int8; any of its clients can read them),"""
    if shape.architecture == "decoder_only":
        stack = f"One stack of {shape.decoder_layers} layers"
    options = direction_options(config)
    trained = f"A machine-translation Transformer trained with `mt`, {steps:,} steps; weights: {weights}."
    source, target = (", ".join(codes) for codes in (config.data.source_lang, config.data.target_lang))
    return f"""{licence_header(facts)}# {config.name}: {source} to {target}

{origin_of(facts, trained)}
{stack}, d_model {shape.d_model}, d_ff {shape.d_ff},
{shape.n_heads} heads.

    mt translate --model THIS_FOLDER {options}"some text"

{result}

The folder is complete and can be moved: `config.yaml` (the whole configuration), `model.safetensors` (the weights),
`tokenizer/`,{ctranslate2 if is_converted else ""} and
`MANIFEST.json` (sizes and sha256 of all of them). No file in it can run code.
"""
