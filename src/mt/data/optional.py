"""Sources that a training can do without, such as translations that another model has yet to make."""

from pathlib import Path

from mt.config import Config, FromTrain, PairFiles, Source, TableFile, is_synthetic
from mt.console import log
from mt.errors import InputError


def with_present_sources(config: Config) -> Config:
    """Leaves out the optional training sources that are not there, and says so; the others are optional no more.

    Raises:
        InputError: none is left, or none in one of the languages.
    """
    kept: list[Source] = []
    for number, source in enumerate(config.data.train):
        if not isinstance(source, PairFiles | TableFile):
            kept.append(source)
            continue
        names = (source.source, source.target) if isinstance(source, PairFiles) else (source.file,)
        paths = [Path(config.data.root) / name for name in names]
        missing = [str(path) for path in paths if source.optional and not path.exists()]
        if missing:
            log.warning("data.train.%d is left out: %s is not there, and it is optional", number, " and ".join(missing))
        else:
            kept.append(source.model_copy(update={"optional": False}))
    for code in config.data.target_lang:
        if not any(config.data.language_of(source) == code for source in kept):
            raise InputError(f"data.train: no source in {code} is there", "all are optional, but one is needed")
    for split, sources in (("valid", config.data.valid), ("test", config.data.test)):
        if isinstance(sources, FromTrain) and all(map(is_synthetic, kept)):
            raise InputError(
                f"data.{split}: cannot be split off the training text: of its sources only synthetic ones are there",
                "name files of its own",
            )
    return config.model_copy(update={"data": config.data.model_copy(update={"train": tuple(kept)})})
