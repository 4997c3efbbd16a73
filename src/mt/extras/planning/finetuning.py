"""`mt init --from`: a configuration that fine-tunes a model on the user's text.

Learning rates and lengths are the usual ones of the field: 2e-5 to 1e-4 and some passes over the text for Transformers
512 to 1,024 wide (transformers' translation example, mBART). Mixing in general text is Chu et al. 2017,
https://aclanthology.org/P17-2061.
"""

import time
from bisect import bisect
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from mt.bundle.load_translator import open_model, read_config
from mt.bundle.pretrained import Pretrained
from mt.config import DataConfig, EvaluationConfig, TrainingConfig, parse_config
from mt.config.base import Section
from mt.console import log
from mt.data.corpus import Pair
from mt.decoding.engine import EngineChoice
from mt.errors import InputError
from mt.extras.planning.first_config import (
    PROBE_LENGTH,
    GivenTexts,
    describe,
    fitting_length,
    read_given_texts,
    refuse_unusable,
    with_precision,
)
from mt.extras.planning.init_options import InitOptions
from mt.extras.planning.probe import probe
from mt.extras.planning.recipe import (
    SIZE_BOUNDS,
    TUNING_REASON,
    Choice,
    Length,
    PlanInputs,
    Shape,
    config_text,
    training_choices,
)
from mt.metrics.scores import score
from mt.storage.find_model import find_model
from mt.text.languages import base_language
from mt.training.optimizers import learning_rate

_SHAPE = ("d_model", "n_heads", "d_ff", "encoder_layers", "decoder_layers", "dropout")
_EPOCHS = (20, 10, 5, 3, 1)  # by size of the text, as in SIZE_BOUNDS
_RATE_WIDTH = 0.05  # learning rate times d_model: 1e-4 for 512
_RATES = (3e-5, 5e-4)  # the lowest and the highest
_LITTLE_TEXT_DROPOUT = 0.2
_NARROW = 256  # up to this d_model, two cores do not need larger batches than 2,048 tokens
_MAX_LENGTH = DataConfig.model_fields["max_length"].default
_SCORED, _BLOCK, _SCORING_SECONDS = 200, 20, 20.0  # sentences in all and at once; no block starts after this time


class Start:
    """A model to fine-tune, of a run or a model folder; `InputError` if there is none, or it is damaged."""

    def __init__(self, path: Path) -> None:
        try:
            self.path, self.folder = path, find_model(path, Path())
            self.config = read_config(self.folder)
        except InputError as error:
            raise InputError(f"--from {error.message}", error.hint) from None

    def languages(self, source: str | None, target: str | None, has_order: bool = True) -> tuple[str, str]:
        """Return the model's codes for the languages of a text; None stands for the only one that it knows.

        Args:
            has_order: False swaps the languages if the model translates only in the other direction.

        Raises:
            InputError: it does not know one of them.
        """
        data = self.config.data
        try:
            known = self._language("--source-lang", source, data.source_lang)
            return known, self._language("--target-lang", target, data.target_lang)
        except InputError:
            if has_order or source is None or target is None:
                raise
            with suppress(InputError):
                return self.languages(target, source)
            raise

    def _language(self, option: str, wanted: str | None, known: Sequence[str]) -> str:
        if wanted in known:
            return str(wanted)
        same = [code for code in known if wanted is None or base_language(code) == base_language(wanted)]
        if len(same) == 1:
            return same[0]
        side, what = ("from", "into")["target" in option], wanted or "no language is given"
        hint = f"give {option}; for a language new to it write a configuration with init_tokenizer: false"
        raise InputError(f"{option}: {what}, but {self.path} translates {side} {', '.join(known)}", hint)


def draft_finetuning(options: InitOptions) -> tuple[str, str]:
    """Read the files, score the model on them, choose a configuration, and time some steps of it.

    Errors are those of `draft_config`.
    """
    assert options.start is not None
    start, texts = Start(options.start), read_given_texts(options)
    if options.general:
        refuse_unusable(texts.general, options.general[0], 1)
    if texts.valid is not None:  # the model is scored on it
        refuse_unusable(texts.valid, options.valid[0], 1)
    number, general = sum(texts.pairs), texts.general.clean
    share = options.general_share if general else 0.0
    weight = min(1.0, float(f"{share / (1 - share) * number / max(general, 1):.3g}"))
    epoch = number + weight * general
    reason = f"the last is general text, {weight * general / epoch:.0%} of each epoch; synthetic: none is held out"
    inputs = replace(texts.inputs, epochs=_EPOCHS[bisect(SIZE_BOUNDS, number)])
    texts = replace(texts, inputs=inputs)
    data = options.data_choices(inputs.held_out, weight, reason if general else "")
    text = partial(_text, options.name, start, data)
    config = parse_config(text(inputs, PROBE_LENGTH), "mt init")
    pretrained = Pretrained.find(config, Path(), {})
    tokenizers = pretrained.tokenizers()
    assert tokenizers is not None
    scores = _score(start, texts, options)
    log.info("%s", scores)
    measured = probe(config, inputs.sample.sample, tokenizers, True, pretrained)
    length = fitting_length(texts, measured, epoch)
    inputs = with_precision(inputs, measured)
    config = parse_config(text(inputs, length), "mt init")
    header, summary = describe(config, texts, measured)
    return text(inputs, length, [*header, f"{scores}."]), f"{summary}\n{scores}"


def _text(
    name: str, start: Start, data: list[Choice], inputs: PlanInputs, length: Length, header: Sequence[str] = ()
) -> str:
    old = start.config
    dropout = max(old.model.dropout, _LITTLE_TEXT_DROPOUT) if inputs.pairs < SIZE_BOUNDS[0] else old.model.dropout
    model = old.model.model_copy(update={"dropout": dropout})
    replaced = {"tune_length_penalty": False, "correct_spelling": True}  # set to defaults, which `_values` leaves out
    decoding = old.decoding.model_copy(update=replaced)
    tokenizer = old.tokenizer
    if tokenizer.sampling_alpha is not None:  # it needs `type` where the file of the tokenizer is not named
        tokenizer = tokenizer.model_copy(update={"type": "unigram"})
    data = data + [Choice("max_length", old.data.max_length)] * (old.data.max_length != _MAX_LENGTH)
    sections: Mapping[str, list[Choice]] = {
        "": [Choice("name", name)],
        "data": data,
        "augmentation": _values(old.augmentation, "as the model's"),
        "tokenizer": _values(tokenizer, "the model's is kept", "vocab_size", "shared"),
        "model": _values(model, "the model's shape; only the kinds of dropout can be changed", *_SHAPE),
        "training": _training(start, inputs, length),
        "decoding": [
            *_values(decoding, "as the model's", "beam_size", "length_penalty"),
            Choice("correct_spelling", False, "the model knows words that are not in this text"),
            *[Choice("tune_length_penalty", True, TUNING_REASON)] * (decoding.beam_size > 1),
        ],
        "evaluation": _values(old.evaluation, "as the model's"),
    }
    return config_text(sections, header)


def _values(section: Section, reason: str, *always: str) -> list[Choice]:
    """Return the keys in `always` and those that differ from their defaults, except paths of tokenizers."""
    fields = type(section).model_fields
    values = {key: value for key, value in section.model_dump().items() if "file" not in key}
    keys = [key for key, value in values.items() if key in always or value != fields[key].default]
    return [Choice(key, values[key], reason * (key == keys[0])) for key in keys]


def _training(start: Start, inputs: PlanInputs, length: Length) -> list[Choice]:
    model, training, longest = start.config.model, start.config.training, start.config.data.max_length
    # Models that Muon trained learn more from it afterwards, too (Liu et al. 2025, arXiv:2502.16982).
    optimizer = "muon" if training.optimizer == "muon" else "adam"
    if optimizer == "muon":
        changed = [
            Choice("optimizer", "muon", "as it was trained"),
            Choice("learning_rate", _half_of_peak(training, model.d_model), "half of what trained the model"),
            Choice("schedule", "cosine", "falls to zero at max_steps"),
        ]
    else:
        rate = float(f"{min(max(_RATE_WIDTH / model.d_model, _RATES[0]), _RATES[1]):.0e}")
        reason = "lower than from scratch, so that little is forgotten; wider models take less"
        changed = [
            Choice("learning_rate", rate, reason),
            Choice("schedule", "linear", "falls to zero at max_steps"),
            Choice("warmup_steps", max(1, min(500, length.steps // 10)), "while Adam's moments are new"),
        ]
    if inputs.device != "cuda" and model.d_model <= _NARROW:
        changed.append(Choice("max_tokens", 2048, "small batches: more steps in the same time"))
    sizes = (model.d_model, model.n_heads, model.d_ff, model.encoder_layers, model.decoder_layers)
    from_scratch = training_choices(Shape(*sizes, known_from="", optimizer=optimizer), inputs, length)
    choices = {choice.key: choice for choice in [*from_scratch, *changed]}
    # Short trainings of a finished model were measured at a falling rate, without averaged weights.
    choices.pop("ema_decay", None)
    if training.guided_alignment:
        choices["guided_alignment"] = Choice("guided_alignment", training.guided_alignment, "as it was trained")
    tokens = choices["max_tokens"].value
    if isinstance(tokens, int) and tokens < longest:
        choices["max_tokens"] = Choice("max_tokens", longest, "of one sentence of data.max_length")
    patience = Choice("patience", 5, "ends when the validation text shows overfitting")
    return [Choice("init_from", str(start.path)), *choices.values(), patience]


def _half_of_peak(training: TrainingConfig, d_model: int) -> float:
    """Return half of the highest learning rate that a training reached."""
    is_factor = training.schedule == "noam"
    peak = learning_rate(training.warmup_steps, training, d_model) if is_factor else training.learning_rate
    return float(f"{peak / 2:.1e}")


def _score(start: Start, texts: GivenTexts, options: InitOptions) -> str:
    """Translate some sentences greedily, and describe their scores."""
    sample = texts.inputs.sample if texts.valid is None else texts.valid
    pairs: list[Pair] = sample.sample[:: max(1, len(sample.sample) // _SCORED)][:_SCORED]
    opened = open_model(start.folder, EngineChoice(device=options.device))
    translator = opened.translator.to(options.target_lang, options.source_lang)
    search = replace(opened.settings.search, beam_size=1)
    hypotheses: list[str] = []
    started = time.perf_counter()
    while len(hypotheses) < len(pairs) and time.perf_counter() - started < _SCORING_SECONDS:
        block = pairs[len(hypotheses) : len(hypotheses) + _BLOCK]
        hypotheses += translator.best([source for source, _ in block], search)
    references = [target for _, target in pairs[: len(hypotheses)]]
    settings = EvaluationConfig(metrics=("bleu", "chrf"), bootstrap_samples=0)
    scores = score(hypotheses, references, settings, options.target_lang)
    split = "training" if texts.valid is None else "validation"
    scored = f"greedy, {len(hypotheses)} sentences of the {split} text"
    return f"{start.path} scores BLEU {scores.bleu:.1f} and chrF {scores.chrf:.1f} before fine-tuning ({scored})"
