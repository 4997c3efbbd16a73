"""The README of a model folder."""

from collections.abc import Mapping
from typing import Any

from mt.config import Config


def direction_options(config: Config) -> str:
    """Return the options that an example of `mt translate` needs to choose a direction, with a space behind each."""
    data = config.data
    (source, target), several = data.pairs[0], (len(data.source_lang) > 1, len(data.target_lang) > 1)
    return f"--from {source} " * several[0] + f"--to {target} " * several[1]


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
    origin = f"A machine-translation Transformer trained with `mt`, {steps:,} steps; weights: {weights}."
    front = ""
    if "imported" in facts:
        origin = f"A machine-translation Transformer, imported from {facts['imported']} by `mt`."
        licence = facts.get("license")
        front = f"---\nlicense: {licence}\n---\n\n" if licence else ""
        origin += f" Its licence is {licence}." if licence else " Its model card names no licence."
    return f"""{front}# {config.name}: {", ".join(config.data.source_lang)} to {", ".join(config.data.target_lang)}

{origin}
{stack}, d_model {shape.d_model}, d_ff {shape.d_ff},
{shape.n_heads} heads.

    mt translate --model THIS_FOLDER {options}"some text"

{result}

The folder is complete and can be moved: `config.yaml` (the whole configuration), `model.safetensors` (the weights),
`tokenizer/`,{ctranslate2 if is_converted else ""} and
`MANIFEST.json` (sizes and sha256 of all of them). No file in it can run code.
"""
