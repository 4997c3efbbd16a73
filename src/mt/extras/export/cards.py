"""The README of an export."""

from mt.config.schema import ExportFormat
from mt.extras.export.subject import Subject
from mt.storage.manifest import read_manifest
from mt.text.languages import language_name

_SOFTWARE: dict[ExportFormat, str] = {
    "ctranslate2": "CTranslate2, with weights in {numbers}",
    "huggingface": "Hugging Face transformers",
    "onnx": "ONNX Runtime",
    "argos": "Argos Translate, with weights in {numbers}",
}


def export_card(subject: Subject, wanted: ExportFormat, number_format: str) -> str:
    """What a stranger who finds the folder should know, as Markdown; how to use it is up to the format."""
    config, shape = subject.config, subject.config.model
    languages = ", ".join(map(language_name, config.data.target_lang))
    software = _SOFTWARE[wanted].format(numbers=number_format)
    parts = [
        f"# {config.name}: {language_name(config.data.source_lang)} to {languages}",
        f"A machine-translation Transformer trained with `mt`, exported for {software}.\n"
        f"{shape.encoder_layers} encoder and {shape.decoder_layers} decoder layers, d_model {shape.d_model}, "
        f"d_ff {shape.d_ff}, {shape.n_heads} heads.",
    ]
    scores = read_manifest(subject.folder.root).get("scores")
    if scores:
        parts.append(f"Scores of the model before its export on its test set, by sacreBLEU:\n\n```\n{scores}\n```")
    return "\n\n".join(parts) + "\n"
