"""Text of a configuration: sections of choices, with their reasons as comments."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mt.config import Config, parse_config
from mt.config.loading import as_yaml
from mt.extras.planning.recipe import Choice, Length, PlanInputs, Shape, model_choices, training_choices

_COMMENT_COLUMN = 32
_DECODING = [
    Choice("beam_size", 5),
    Choice("length_penalty", 1.0, "after training, `mt eval --tune-length-penalty` finds the best for the model"),
]


@dataclass(frozen=True)
class ConfigTemplate:
    """A configuration without the size of the model and the length of the training."""

    name: str
    data: list[Choice]
    tokenizer: list[Choice]
    inputs: PlanInputs

    def text(self, shape: Shape, length: Length, header: Sequence[str] = ()) -> str:
        """Return YAML below a comment of `header`."""
        sections = {
            "": [Choice("name", self.name)],
            "data": self.data,
            "tokenizer": self.tokenizer,
            "model": model_choices(shape, self.inputs, length.epochs),
            "training": training_choices(shape, self.inputs, length),
            "decoding": _DECODING,
        }
        comment = [f"# {line}".rstrip() for line in header]
        lines = [line for name, choices in sections.items() for line in _section(name, choices)]
        return "".join(f"{line}\n" for line in [*comment, *lines])

    def config(self, shape: Shape, length: Length) -> Config:
        """Return the parsed configuration."""
        return parse_config(self.text(shape, length), "mt init")


def _section(name: str, choices: Sequence[Choice]) -> Iterator[str]:
    if name:
        yield f"{name}:"
    for choice in choices:
        text = f"{'  ' if name else ''}{choice.key}: {as_yaml(choice.value)}"
        yield f"{text:<{_COMMENT_COLUMN}}  # {choice.reason}" if choice.reason else text
