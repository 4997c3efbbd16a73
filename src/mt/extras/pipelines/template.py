"""`mt init --pipeline`: a pipeline around the configuration of a teacher, for the user's text and time."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from mt.config import Config, FromTrain, PairFiles, TrainingConfig, parse_config
from mt.config.loading import as_yaml
from mt.errors import InputError
from mt.extras.planning.init_options import InitOptions
from mt.extras.planning.recipe import rounded

# Shares of the time of two teachers, the reverse model and the student; the rest is for translating and scoring
_TEACHER, _REVERSE, _STUDENT = 0.18, 0.14, 0.34
_STUDENT_LAYERS = (6, 1)
_DECODER_LAYER = 1.6  # cost of a layer of the decoder, of one of the encoder

_STUDENT_PIPELINE = """\
# Written by `mt init --pipeline student`: two teachers translate the training text together, a model of the other
# direction filters what they wrote, and a small, fast student learns from both. {time}.
#
#     mt train --config {stem}-student.yaml
name: {name}-student
steps:
  teacher_1:
    train: {{config: {file}}}
  teacher_2:
    train: {{config: {file}, set: {{{other}}}}}
  reverse:
    train:
      config: {file}
      set:
        data:
          source_lang: {target_lang}
          target_lang: {source_lang}
          train: {{source: {target}, target: {source}}}{valid}
          test: null
        training: {{{reverse}}}

  translated:
    distill: {{model: [{{step: teacher_1}}, {{step: teacher_2}}], input: {source}}}
  scores:
    score:
      config: {file}
      set: {{data.train: {translated}}}
      forward: {{step: teacher_1}}
      backward: {{step: reverse}}
  filtered:
    clean:
      config: {file}
      set: {{data.train: {translated}}}
      scores: {{step: scores}}
      keep_share: 0.9

  student:
    train:
      config: {file}
      set:
        data.train:
          - {own}
          - source: {{step: filtered, file: train.{source_lang}}}
            target: {{step: filtered, file: train.{target_lang}}}
            synthetic: true
        model: {{encoder_layers: {encoder}, decoder_layers: {decoder}}}
        training: {{{student}}}
        decoding: {{compute_type: int8, shortlist: 30}}
"""

Draft = Callable[[InitOptions, str], tuple[str, str]]


def draft_pipeline(options: InitOptions, draft: Draft, schema: str, path: Path) -> tuple[str, str, str]:
    """Write the configuration of a teacher, and a pipeline that makes a student of two such teachers.

    Args:
        options: of `mt init`; `minutes` is the time for the whole pipeline, one step after the other.
        draft: writes a configuration, and a summary for the terminal.
        schema: as for `draft`.
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
    text, summary = draft(replace(options, minutes=minutes and max(1.0, _TEACHER * minutes)), schema)
    config = parse_config(text, str(path))
    return text, _student(config, path, minutes), summary


def _student(config: Config, path: Path, minutes: float | None) -> str:
    data, model, training = config.data, config.model, config.training
    pair = data.train[0]
    assert isinstance(pair, PairFiles)
    own = f"{{source: {as_yaml(pair.source)}, target: {as_yaml(pair.target)}}}"
    translated = f"{{source: {as_yaml(pair.source)}, target: {{step: translated}}}}"
    held_out = any(isinstance(split, FromTrain) for split in (data.valid, data.test))
    # A split depends on the seed, and the teachers' must be the same, or their vocabularies would differ.
    other = f"model.encoder_layers: {model.encoder_layers + 2}" if held_out else f"seed: {config.seed + 1}"
    encoder, decoder = _STUDENT_LAYERS
    teacher_cost = model.encoder_layers + _DECODER_LAYER * model.decoder_layers
    speed = teacher_cost / (encoder + _DECODER_LAYER * decoder)
    student = _length(training, speed * _STUDENT, _STUDENT)
    reverse = _length(training, _REVERSE, _REVERSE)
    time = f"{minutes:g} minutes, one step after the other" if minutes else "`--dry-run` shows the time"
    valid = "" if isinstance(data.valid, FromTrain) else f"\n          valid: {_reversed(data.valid)}"
    return _STUDENT_PIPELINE.format(
        time=time,
        stem=path.stem,
        name=config.name,
        file=path.name,
        other=other,
        source_lang=data.source_lang[0],
        target_lang=data.target_lang[0],
        source=as_yaml(pair.source),
        target=as_yaml(pair.target),
        valid=valid,
        reverse=reverse,
        student=student,
        translated=translated,
        own=own,
        encoder=encoder,
        decoder=decoder,
    )


def _length(teacher: TrainingConfig, steps_share: float, time_share: float) -> str:
    """Return the length of a training as keys, for shares of all steps and of the time as those of a teacher."""
    steps = rounded(teacher.max_steps * steps_share / _TEACHER)
    keys = f"max_steps: {steps}, warmup_steps: {max(1, min(500, steps // 8))}, validate_every: {max(1, steps // 8)}"
    if teacher.minutes is None:
        return keys
    return f"{keys}, minutes: {teacher.minutes * time_share / _TEACHER:.3g}"


def _reversed(sources: object) -> str:
    """Return sources with their sides exchanged."""
    assert isinstance(sources, tuple)
    pairs = [each for each in sources if isinstance(each, PairFiles)]
    if len(pairs) < len(sources):
        raise InputError("--pipeline student needs --valid as two text files", "give --valid SOURCE TARGET")
    texts = [f"{{source: {as_yaml(pair.target)}, target: {as_yaml(pair.source)}}}" for pair in pairs]
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
