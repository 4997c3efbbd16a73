"""The text of a configuration: sections of choices, with their reasons as comments."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from mt.config import Config, parse_config
from mt.config.loading import as_yaml
from mt.extras.planning.recipe import Choice, Ground, Length, Shape, model_choices, training_choices

_COLUMN = 32  # where comments begin
_DECODING = [
    Choice("beam_size", 5),
    Choice("length_penalty", 1.0, "afterwards `mt eval --tune-length-penalty` finds one that suits the model"),
]


@dataclass(frozen=True)
class Draft:
    """What a configuration is written from, but for the size of the model and the length of the training."""

    name: str
    data: list[Choice]
    tokenizer: list[Choice]
    ground: Ground

    def text(self, shape: Shape, length: Length, header: Sequence[str] = ()) -> str:
        """The file's content, below a comment."""
        sections = {
            "": [Choice("name", self.name)],
            "data": self.data,
            "tokenizer": self.tokenizer,
            "model": model_choices(shape, self.ground, length.epochs),
            "training": training_choices(shape, self.ground, length),
            "decoding": _DECODING,
        }
        comment = "".join(f"# {line}".rstrip() + "\n" for line in header)
        return comment + as_text(sections)

    def config(self, shape: Shape, length: Length) -> Config:
        """The same, read."""
        return parse_config(self.text(shape, length), "mt init")


def as_text(sections: Mapping[str, Sequence[Choice]]) -> str:
    """YAML of sections; the keys of the one without a name are at the top level."""
    return "".join(line + "\n" for name, choices in sections.items() for line in _section(name, choices))


def _section(name: str, choices: Sequence[Choice]) -> Iterator[str]:
    if name:
        yield f"{name}:"
    for choice in choices:
        text = f"{'  ' if name else ''}{choice.key}: {as_yaml(choice.value)}"
        yield f"{text:<{_COLUMN}}  # {choice.reason}" if choice.reason else text
