"""A model folder, opened and ready to translate with the engine that suits best.

The fast engine's path through here imports no torch and no pydantic: a sentence at the prompt must not wait for them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mt.bundle.checks import load_tokenizers, read_text, require, verified
from mt.bundle.converted_file import check_converted, check_map
from mt.console import log
from mt.data.tokenizer import TokenizerPair
from mt.decoding.engine import COMPUTE_TYPES, DEVICES, ENGINES, FLOAT_TYPES, Engine, EngineChoice, UnusableError
from mt.decoding.settings import TranslationSettings
from mt.decoding.translator import Translator
from mt.errors import InputError
from mt.storage.find_model import run_of_checkpoint
from mt.storage.run_dir import VOCABULARY_MAP, ModelDir

if TYPE_CHECKING:
    from mt.config import Config
    from mt.model.build import TranslationModel


@dataclass(frozen=True)
class OpenedModel:
    """A translator, what its model was made for, and which engine runs it.

    Attributes:
        model: the model itself, where torch runs it alone.
        tokenizers: those of the model.
    """

    translator: Translator
    settings: TranslationSettings
    engine: str
    tokenizers: TokenizerPair
    model: "TranslationModel | None" = None


def open_model(folder: ModelDir, choice: EngineChoice | None = None, others: Sequence[ModelDir] = ()) -> OpenedModel:
    """Reads a model folder, or several that translate as one: the mean of their distributions decides.

    Raises:
        InputError: one is not whole, they do not fit together, this machine lacks the device, or an engine that was
            asked for cannot run it.
    """
    choice = choice or EngineChoice()
    _check(choice)
    only_torch = _only_torch(folder, others, choice)
    if only_torch is not None and choice.engine == "ctranslate2":
        raise InputError(f"--engine ctranslate2 {only_torch}", "leave it out")
    if only_torch is None and choice.engine != "torch":
        try:
            device = _fast_device(choice)
            if device is not None:
                return _open_converted(folder, choice, device)
        except UnusableError as error:
            if choice.engine == "ctranslate2" or choice.compute_type not in ("auto", *FLOAT_TYPES):
                torch_can = choice.compute_type in ("auto", *FLOAT_TYPES)
                hint = "use --engine torch" if torch_can else "take --compute-type float32, which torch has, too"
                raise InputError(str(error), hint) from None
            if not _is_made_for_torch(folder):
                log.warning("%s; translating with torch, which starts and works more slowly", error)
    return _open_with_torch([folder, *others], choice)


def _only_torch(folder: ModelDir, others: Sequence[ModelDir], choice: EngineChoice) -> str | None:
    """What the fast engine cannot do of what is asked; None where it can do all of it."""
    if others:
        return "runs one model only"
    if choice.sampling:
        return "does not draw samples that can be drawn again"
    return "does not run checkpoints" if run_of_checkpoint(folder) is not None else None


def _is_made_for_torch(folder: ModelDir) -> bool:
    """Whether nothing is amiss if the fast engine cannot run it: nobody can change that, so nobody need hear of it."""
    return read_config(folder).model.architecture == "decoder_only"


def read_config(folder: ModelDir) -> "Config":
    """The whole configuration of a folder."""
    from mt.config import parse_config

    run = run_of_checkpoint(folder)
    if run is not None:
        return parse_config(read_text(run.config), str(run.config))
    require(folder, verified(folder, folder.config), folder.config)
    return parse_config(read_text(folder.config), str(folder.config))


def _check(choice: EngineChoice) -> None:
    for option, value, known in (
        ("--engine", choice.engine, ENGINES),
        ("--device", choice.device, DEVICES),
        ("--compute-type", choice.compute_type, ("auto", *COMPUTE_TYPES)),
    ):
        if value not in known:
            raise InputError(f"{option}: '{value}' is none of {', '.join(known)}")
    if choice.engine == "torch" and choice.compute_type not in ("auto", *FLOAT_TYPES):
        raise InputError(
            f"--compute-type {choice.compute_type} needs the CTranslate2 engine",
            f"leave out --engine torch, or take one of {', '.join(FLOAT_TYPES)}",
        )
    if choice.engine == "ctranslate2" and choice.device == "mps":
        raise InputError("--engine ctranslate2 does not run on mps", "use --device cpu, or --engine torch")


def _fast_device(choice: EngineChoice) -> str | None:
    """Where CTranslate2 is to run; None where torch is the better choice.

    Torch translates on GPUs unless the number format is one that only CTranslate2 has.
    """
    try:
        import ctranslate2
    except ImportError as error:
        raise UnusableError(f"CTranslate2 cannot be imported ({error})") from None
    only_here = choice.engine == "ctranslate2" or choice.compute_type not in ("auto", *FLOAT_TYPES)
    device = choice.device
    if device == "auto":
        device = "cuda" if ctranslate2.get_cuda_device_count() > 0 else "cpu"
    if device == "cpu" or only_here:
        return device
    return None


def _open_converted(folder: ModelDir, choice: EngineChoice, device: str) -> OpenedModel:
    if folder.manifest.is_file() and not folder.ctranslate2.is_dir():
        raise UnusableError(f"{folder.root}: it has no CTranslate2 part")
    listed = verified(folder, folder.tokenizer, folder.settings)
    if folder.settings.relative_to(folder.root).as_posix() not in listed:
        raise UnusableError(f"{folder.root}: it has no CTranslate2 part")
    settings = TranslationSettings.read(folder.settings)
    tokenizers = load_tokenizers(folder, listed, settings.shared_vocabulary)
    return open_converted(folder, settings, tokenizers, choice, device)


def open_converted(
    folder: ModelDir,
    settings: TranslationSettings,
    tokenizers: TokenizerPair,
    choice: EngineChoice,
    device: str = "cpu",
) -> OpenedModel:
    """Opens the CTranslate2 part of a folder that need not be whole yet.

    Raises:
        UnusableError: CTranslate2 cannot run it here.
    """
    try:
        from mt.decoding.ctranslate2_engine import CTranslate2Engine, is_supported
    except ImportError as error:
        raise UnusableError(f"CTranslate2 cannot be imported ({error})") from None
    compute_type = settings.compute_type if choice.compute_type == "auto" else choice.compute_type
    if not is_supported(compute_type, device):
        log.warning("this machine's %s cannot compute in %s; using float32", device, compute_type)
        compute_type = "float32"
    converted = folder.converted("int8" if compute_type.startswith("int8") else "float32")
    if not converted.is_dir():
        raise UnusableError(f"{folder.root}: it has no CTranslate2 part in {converted.name}")
    if folder.manifest.exists():  # it does not while the folder is being made
        listed = verified(folder, converted)
        there = (path for path in sorted(converted.iterdir()) if not path.name.startswith("."))  # as of file managers
        require(folder, listed, converted / "model.bin", converted / "config.json", *there)
        check_converted(converted / "model.bin", tokenizers.source.vocab_size, tokenizers.target.vocab_size)
        if (converted / VOCABULARY_MAP).is_file():
            check_map(converted / VOCABULARY_MAP)
    shortlist = settings.shortlist if choice.shortlist is None else choice.shortlist
    if shortlist and not (converted / VOCABULARY_MAP).is_file():
        raise InputError(
            f"{folder.root}: it has no shortlist", "leave out --shortlist, or train with decoding.shortlist set"
        )
    engine = CTranslate2Engine(
        converted,
        tokenizers,
        settings.max_positions,
        settings.batch_tokens,
        device=device,
        compute_type=compute_type,
        shortlist=shortlist,
        one_by_one=choice.one_by_one,
    )
    words = ["CTranslate2", compute_type, "with shortlist" if shortlist else "", f"on {device}"]
    return _opened(engine, settings, tokenizers, " ".join(word for word in words if word))


def _open_with_torch(folders: Sequence[ModelDir], choice: EngineChoice) -> OpenedModel:
    from mt.bundle.model_folder import load_model
    from mt.decoding.ensemble import Ensemble
    from mt.decoding.torch_engine import TorchEngine, torch_dtype
    from mt.system.devices import choose_device

    if choice.compute_type not in ("auto", *FLOAT_TYPES):
        raise InputError(
            f"--compute-type {choice.compute_type} needs the CTranslate2 engine, which cannot do what is asked",
            f"take one of {', '.join(FLOAT_TYPES)}",
        )
    if choice.shortlist:
        log.warning("--shortlist: only the CTranslate2 engine has shortlists; translating without one")
    device = choose_device(choice.device, "--device")
    loaded = [load_model(folder, device) for folder in folders]
    first = loaded[0]
    for folder, other in zip(folders, loaded, strict=True):
        if other.tokenizers.files() != first.tokenizers.files():
            raise InputError(
                f"{folder.root}: its vocabulary is not that of {folders[0].root}",
                "models can only translate together when they were trained with the same tokenizer",
            )
    each = [TranslationSettings.of(model.config) for model in loaded]
    settings = replace(
        each[0],
        max_source_tokens=min(own.max_source_tokens for own in each),
        target_lang=",".join(_languages_of_all(folders, [model.config for model in loaded])),
    )
    dtype = torch_dtype(choice.compute_type)
    models = [one.model.to(dtype) for one in loaded]
    engine = TorchEngine(Ensemble(models) if len(models) > 1 else models[0], settings.batch_tokens)
    together = f"{len(models)} models together, " if len(models) > 1 else ""
    name = f"{together}torch {str(dtype).removeprefix('torch.')} on {device}"
    return _opened(engine, settings, first.tokenizers, name, models[0] if len(models) == 1 else None)


def _languages_of_all(folders: Sequence[ModelDir], configs: "Sequence[Config]") -> tuple[str, ...]:
    """The languages that models can translate into together, in the order of the first.

    Raises:
        InputError: they do not translate from the same language, or into none that all have.
    """
    languages = configs[0].data.target_lang
    for folder, config in zip(folders, configs, strict=True):
        languages = tuple(code for code in languages if code in config.data.target_lang)
        if config.data.source_lang != configs[0].data.source_lang or not languages:
            here, first = (
                f"{one.data.source_lang} to {', '.join(one.data.target_lang)}" for one in (config, configs[0])
            )
            raise InputError(
                f"{folder.root}: translates from {here}, and {folders[0].root} from {first}",
                "models can only translate together in the same direction",
            )
    return languages


def _opened(
    engine: Engine,
    settings: TranslationSettings,
    tokenizers: TokenizerPair,
    name: str,
    model: "TranslationModel | None" = None,
) -> OpenedModel:
    log.debug("engine: %s", name)
    translator = Translator(engine, tokenizers, settings.max_source_tokens, settings.target_langs)
    return OpenedModel(translator, settings, name, tokenizers, model)
