"""What every section of a configuration shares: strictness, and rules that span several values."""

import unicodedata
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    GetJsonSchemaHandler,
    Tag,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

_UNPRINTABLE = {"Cc", "Cf", "Cs", "Zl", "Zp"}  # Unicode's controls, halves of characters, and line ends
_JOINERS = "\u200c\u200d"  # parts of words in some languages


class Section(BaseModel):
    """What all parts of a configuration have in common: nothing unknown, nothing converted, nothing changed later."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Rule(NamedTuple):
    """A combination of values that cannot work.

    Attributes:
        broken: whether this configuration has it.
        keys: the keys that take part, dotted from the section the rule belongs to, the likeliest culprit first.
        reason: why it cannot work, for the user.
    """

    broken: bool
    keys: tuple[str, ...]
    reason: str


def enforce(*rules: Rule) -> None:
    """Refuse a section that breaks rules, naming all of them at once.

    Raises:
        PydanticCustomError: of type `rules`, with the broken ones in its context.
    """
    broken = [rule for rule in rules if rule.broken]
    if broken:
        raise PydanticCustomError("rules", "contradiction", {"rules": broken})


def refuse(sentence: str) -> PydanticCustomError:
    """An error whose message is already meant for the user."""
    return PydanticCustomError("plain", "{sentence}", {"sentence": sentence})


def _one_line(text: str) -> str:
    if not text.strip():
        raise refuse("must not be empty")
    if any(unicodedata.category(character) in _UNPRINTABLE and character not in _JOINERS for character in text):
        raise refuse("must not hold control characters or line ends")
    return text


def as_tuple(value: object) -> object:
    """A list's items, or the one thing that stands without a list around it."""
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def without_repeats(values: tuple[str, ...]) -> tuple[str, ...]:
    """A list of choices as it is; refuses one that names something twice."""
    repeated = sorted({value for value in values if values.count(value) > 1})
    if repeated:
        raise refuse(f"names {repeated[0]} more than once")
    return values


@dataclass(frozen=True)
class OneOrList:
    """Tells the JSON schema what `as_tuple` allows."""

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        several = handler(core)
        return {"anyOf": [several["items"], several]}


_LANGUAGE = "^[A-Za-z0-9][A-Za-z0-9_-]{0,31}$"
RUN_NAME = "^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
# What a text has to be that matches a pattern.
PATTERNS = {
    _LANGUAGE: "a short code such as en or pt-BR: letters, digits, - and _ only",
    RUN_NAME: "letters, digits, dots, - and _ only (at most 100), starting with a letter or digit",
}
Line = Annotated[str, Field(max_length=4096), AfterValidator(_one_line)]
Lines = Annotated[
    tuple[Line, ...],
    Field(max_length=100),
    BeforeValidator(as_tuple),
    AfterValidator(without_repeats),
    OneOrList(),
]
# The marks keep pydantic's tags apart from the keys of a file in the location of an error.
SWITCH_TAGS = ("<switch>", "<name>")
SwitchOrName = Annotated[
    Annotated[bool, Tag(SWITCH_TAGS[0])] | Annotated[Line, Tag(SWITCH_TAGS[1])],
    Discriminator(lambda value: SWITCH_TAGS[isinstance(value, str)]),
]
LanguageCode = Annotated[str, Field(pattern=_LANGUAGE)]
