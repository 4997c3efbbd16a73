"""Building blocks of the configuration's sections: strict models, rules over several keys, shared types."""

import unicodedata
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, model_validator
from pydantic_core import CoreSchema, PydanticCustomError
from pydantic_core.core_schema import no_info_before_validator_function


class Rule(NamedTuple):
    """A combination of values that cannot work.

    Attributes:
        keys: the keys involved, dotted from the section the rule belongs to, the likeliest culprit first.
        reason: why it cannot work, for the user.
    """

    keys: tuple[str, ...]
    reason: str


class Section(BaseModel):
    """A part of the configuration: no unknown keys, no conversions, immutable.

    The string below a field is its description in docs/configuration.md and in the JSON schema.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        for field in cls.model_fields.values():
            field.description = " ".join((field.description or "").split())

    def broken_rules(self) -> Iterator[Rule]:
        """Yield the combinations of values in this section that cannot work."""
        yield from ()

    @model_validator(mode="after")
    def _check_rules(self) -> Self:
        if broken := list(self.broken_rules()):
            raise PydanticCustomError("rules", "contradiction", {"rules": broken})
        return self


_UNPRINTABLE = {"Cc", "Cf", "Cs", "Zl", "Zp"}  # Unicode's controls, surrogates, and line ends
_JOINERS = "\u200c\u200d"  # parts of words in some languages


def _one_line(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be empty")
    if any(unicodedata.category(character) in _UNPRINTABLE and character not in _JOINERS for character in text):
        raise ValueError("must not contain control characters or line ends")
    return text


def without_repeats(values: tuple[str, ...]) -> tuple[str, ...]:
    """Return a list of choices unchanged; refuse one that repeats a value."""
    if repeated := sorted({value for value in values if values.count(value) > 1}):
        raise ValueError(f"names {repeated[0]} more than once")
    return values


def _as_tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list | tuple) else (value,)


class OneOrList:
    """Annotation of a tuple that makes a list valid, and a single item, which becomes a tuple of one."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], CoreSchema]) -> CoreSchema:
        return no_info_before_validator_function(_as_tuple, handler(source))

    def __get_pydantic_json_schema__(self, core: Any, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        several = handler(core)
        return {"anyOf": [several["items"], several]}


_LANGUAGE = "^[A-Za-z0-9][A-Za-z0-9_-]{0,31}$"
RUN_NAME = "^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
DELIMITER = '^[^"\\r\\n\\x00]$'
PATTERN_MEANINGS = {
    DELIMITER: "one character, and no double quote or line end",
    _LANGUAGE: "a short code such as en or pt-BR: letters, digits, - and _ only",
    RUN_NAME: "letters, digits, dots, - and _ only (at most 100), starting with a letter or digit",
}
# The angle brackets keep pydantic's tags apart from the keys of a file in the location of an error.
SWITCH_TAGS = ("<switch>", "<name>")

Fraction = Annotated[float, Field(ge=0, lt=1)]
LanguageCode = Annotated[str, Field(pattern=_LANGUAGE)]
Line = Annotated[str, Field(max_length=4096), AfterValidator(_one_line)]
Lines = Annotated[tuple[Line, ...], Field(max_length=100), AfterValidator(without_repeats), OneOrList()]
SwitchOrName = Annotated[
    Annotated[bool, Tag(SWITCH_TAGS[0])] | Annotated[Line, Tag(SWITCH_TAGS[1])],
    Discriminator(lambda value: SWITCH_TAGS[isinstance(value, str)]),
]


def _switch_or_auto(value: object) -> object:
    if not isinstance(value, bool) and value != "auto":
        raise ValueError("must be auto, true or false")
    return value


SwitchOrAuto = Annotated[bool | Literal["auto"], BeforeValidator(_switch_or_auto)]
