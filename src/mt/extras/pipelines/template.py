"""`mt init --pipeline`: a pipeline around the configuration of a teacher, for the user's text and time."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from mt.config import Config, ModelConfig, PairFiles, TrainingConfig, parse_config
from mt.config.loading import as_yaml
from mt.console import quoted
from mt.errors import InputError
from mt.extras.pipelines.estimates import search_factor
from mt.extras.planning.init_options import InitOptions
from mt.extras.planning.recipe import rounded
from mt.text.lines import count_lines

# Shares of the time: the teacher's training and translating, and the student's training; the rest prepares and scores
# the student. The student's is short, since a longer training of the teacher gains more (docs/lab/students.md).
_TEACHER, _STUDENT = 0.93, 0.04
_BEAM = 3  # of the teacher, translating
_FEW_PAIRS = 20_000  # below it a decoder of one layer suffices; with 49,887 it lost 2.5 BLEU
_MIN_DECODER = 2  # layers, for more text; the encoder gets the others (docs/lab/students.md)
_RATE = 0.1  # of the teacher's learning rate, for a student that starts with its weights

_STUDENT_PIPELINE = """\
# Written by `mt init --pipeline student`: a teacher translates the training text, and a student that starts from its
# weights learns from the references and the translations closest to them. {time}.
#
#     mt train --config {pipeline}
name: {name}
steps:
  teacher:
    train: {{config: {file}, set: {{{shape}, decoding: {{shortlist: 50}}}}}}
  translated:
    distill: {{model: {{step: teacher}}, input: {source}, closest_to: {target}, beam: {beam}, compute_type: int8}}
  student:
    train:
      config: {file}
      set:
        data.train:
          - {{source: {source}, target: {target}}}
          - {{source: {source}, target: {{step: translated}}, synthetic: true}}
        {shape}
        training: {{init_from: {{step: teacher}}, {student}}}
        decoding: {{compute_type: int8, shortlist: 50, beam_size: 3}}
"""

Draft = Callable[[InitOptions], tuple[str, str]]


def draft_pipeline(options: InitOptions, draft: Draft, path: Path) -> tuple[str, str, str]:
    """Write the configuration of a training, and a pipeline that makes a fast student of it.

    Args:
        options: of `mt init`; `minutes` is the time for the whole pipeline, one step after the other.
        draft: writes a configuration, and a summary for the terminal.
        path: of the configuration, beside which the pipeline lies.

    Returns:
        the text of the configuration, that of the pipeline, and the summary.

    Raises:
        InputError: the training text is not one pair of text files, or there are several target languages.
    """
    if len(options.train) != 1 or "target" not in options.train[0]:
        hint = "give --train SOURCE TARGET; `mt data clean` writes such files"
        raise InputError("--pipeline student needs the training text as two text files", hint)
    minutes = options.minutes
    teacher_minutes = minutes and max(1.0, _TEACHER * minutes)
    text, summary = draft(replace(options, minutes=teacher_minutes, translating=search_factor(_BEAM, True, True)))
    config = parse_config(text, str(path))
    return text, _student(config, path, minutes), summary


def _student(config: Config, path: Path, minutes: float | None) -> str:
    pair = config.data.train[0]
    assert isinstance(pair, PairFiles)
    return _STUDENT_PIPELINE.format(
        time=f"{minutes:g} minutes in all" if minutes else "`--dry-run` shows the time",
        pipeline=quoted(str(path.with_name(f"{path.stem}-student.yaml"))),
        name=f"{config.name[:92]}-student",  # 100 characters at most
        file=_in_map(path.name),
        shape=_shape(config.model, count_lines(Path(config.data.root, pair.source))),
        beam=_BEAM,
        source=_in_map(pair.source),
        target=_in_map(pair.target),
        student=_student_training(config.training),
    )


def _shape(model: ModelConfig, pairs: int) -> str:
    """Return the key `model` with a deeper encoder and a shallower decoder, which translates faster."""
    encoder, decoder = 6, 1
    if pairs >= _FEW_PAIRS:
        decoder = max(_MIN_DECODER, model.decoder_layers // 2)
        encoder = model.encoder_layers + model.decoder_layers - decoder
    return f"model: {{encoder_layers: {encoder}, decoder_layers: {decoder}}}"


def _in_map(value: str) -> str:
    """Return a value as YAML for a map in braces, where a comma must be quoted."""
    return as_yaml([value])[1:-1]


def _student_training(teacher: TrainingConfig) -> str:
    """Return the keys of a student's training: its length, learning rate and schedule."""
    steps = rounded(teacher.max_steps * _STUDENT / _TEACHER)
    keys: dict[str, object] = {
        "max_steps": steps,
        "warmup_steps": max(1, min(100, steps // 8)),
        "validate_every": max(1, steps // 4),
        "learning_rate": float(f"{teacher.learning_rate * _RATE:.3g}"),
    }
    if teacher.schedule == "constant":  # a falling rate is better for a student (docs/lab/averaging.md)
        keys |= {"schedule": "cosine", "ema_decay": None}
    if teacher.minutes is not None:
        keys["minutes"] = float(f"{teacher.minutes * _STUDENT / _TEACHER:.3g}")
    return ", ".join(f"{key}: {as_yaml(value)}" for key, value in keys.items())
