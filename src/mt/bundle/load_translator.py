"""Loading of model folders for translation, with the fastest engine that can run them.

The CTranslate2 path imports neither torch nor pydantic, so that a single sentence at the prompt starts quickly.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mt.bundle.checks import load_preprocessing, load_tokenizers, verify_files
from mt.bundle.converted_file import check_converted, check_map
from mt.console import log
from mt.data.sentence_format import SentenceFormat
from mt.data.tokenizer import UNK_ID
from mt.data.tokenizer_kinds import TokenizerPair
from mt.decoding.engine import COMPUTE_TYPES, DEVICES, ENGINES, FLOAT_TYPES, EngineChoice, SearchOptions, UnusableError
from mt.decoding.settings import TranslationSettings
from mt.decoding.translator import Translator
from mt.errors import InputError, MachineError, memory_explained
from mt.storage.find_model import run_of_checkpoint
from mt.storage.run_dir import VOCABULARY_MAP, ModelDir

if TYPE_CHECKING:
    from mt.config import Config
    from mt.data.glossary import Glossary
    from mt.model.build import TranslationModel

_TORCH_TYPES = ("auto", *FLOAT_TYPES)


@dataclass(frozen=True)
class OpenedModel:
    """A translator with its settings and the name of its engine; also the model, if torch runs a single one."""

    translator: Translator
    settings: TranslationSettings
    engine: str
    tokenizers: TokenizerPair
    model: "TranslationModel | None" = None

    def with_glossary(self, glossary: "Glossary | None") -> "OpenedModel":
        """Return the same model, whose translations have the terms of a glossary."""
        return replace(self, translator=replace(self.translator, glossary=glossary)) if glossary else self


def open_model(folder: ModelDir, choice: EngineChoice | None = None, others: Sequence[ModelDir] = ()) -> OpenedModel:
    """Open a model folder or a checkpoint; with `others`, an ensemble that averages their distributions.

    Raises:
        InputError: a folder is incomplete, they do not fit together, this machine lacks the device, or the engine that
            was requested cannot run them.
    """
    choice = choice or EngineChoice()
    unsupported = check_choice(folder, choice, others)
    if unsupported is None and not choice.engine.startswith("torch"):
        try:
            device = _ctranslate2_device(choice)
            if device is not None:
                return _open_with_ctranslate2(folder, choice, device)
        except UnusableError as error:
            if choice.compute_type not in _TORCH_TYPES:
                raise InputError(str(error), "use --compute-type float32, which torch also has") from None
            if choice.engine == "ctranslate2":
                raise InputError(str(error), "use --engine torch") from None
            # Decoder-only models have no CTranslate2 part by design; a warning would not help.
            if read_config(folder).model.architecture != "decoder_only":
                log.warning("%s; translating with torch, which starts and works more slowly", error)
    return _open_with_torch([folder, *others], choice)


def read_config(folder: ModelDir) -> "Config":
    """Read the configuration of a model folder, or of a checkpoint's run.

    Raises:
        InputError: it is missing, altered or invalid.
    """
    from mt.config import load_config

    run = run_of_checkpoint(folder)
    if run is not None:
        return load_config(run.config)
    verify_files(folder, folder.config)
    return load_config(folder.config)


def check_choice(folder: ModelDir, choice: EngineChoice, others: Sequence[ModelDir] = ()) -> str | None:
    """Return the reason why CTranslate2 cannot run these models, or None; they need not exist yet.

    Raises:
        InputError: the choice names something unknown, or no engine supports it.
    """
    for option, value, known in (
        ("--engine", choice.engine, ENGINES),
        ("--device", choice.device, DEVICES),
        ("--compute-type", choice.compute_type, ("auto", *COMPUTE_TYPES)),
    ):
        if value not in known:
            raise InputError(f"{option}: '{value}' is not one of {', '.join(known)}")
    if choice.engine.startswith("torch") and choice.compute_type not in _TORCH_TYPES:
        hint = f"leave out --engine {choice.engine}, or use one of {', '.join(FLOAT_TYPES)}"
        raise InputError(f"--compute-type {choice.compute_type} needs the CTranslate2 engine", hint)
    if choice.engine == "ctranslate2" and choice.device == "mps":
        raise InputError("--engine ctranslate2 does not run on mps", "use --device cpu, or --engine torch")
    unsupported = None
    if others:
        unsupported = "runs one model only"
    elif choice.sampling:
        unsupported = "does not draw reproducible samples"
    elif run_of_checkpoint(folder) is not None:
        unsupported = "does not run checkpoints"
    if unsupported is not None and choice.engine == "ctranslate2":
        raise InputError(f"--engine ctranslate2 {unsupported}", "leave it out")
    if unsupported is not None and choice.compute_type not in _TORCH_TYPES:
        message = f"--compute-type {choice.compute_type} needs the CTranslate2 engine, which {unsupported}"
        raise InputError(message, f"use one of {', '.join(FLOAT_TYPES)}")
    return unsupported


def _ctranslate2_device(choice: EngineChoice) -> str | None:
    """Choose CTranslate2's device; None if torch can translate on a GPU, where it is faster."""
    try:
        import ctranslate2
    except ImportError as error:
        raise UnusableError(f"CTranslate2 cannot be imported ({error})") from None
    required = choice.engine == "ctranslate2" or choice.compute_type not in _TORCH_TYPES
    if choice.device != "auto":
        return choice.device if choice.device == "cpu" or required else None
    if ctranslate2.get_cuda_device_count() == 0:
        return "cpu"
    if required:
        return "cuda"
    from mt.system.devices import usable_devices  # imports torch, which translates on the GPU if it can

    return None if usable_devices()["cuda"] else "cpu"


def _open_with_ctranslate2(folder: ModelDir, choice: EngineChoice, device: str) -> OpenedModel:
    is_deleted = folder.manifest.is_file() and not folder.ctranslate2.is_dir()
    name = folder.settings.relative_to(folder.root).as_posix()
    if is_deleted or name not in verify_files(folder, part=folder.settings):
        raise UnusableError(f"{folder.root}: it has no CTranslate2 part")
    settings = TranslationSettings.read(folder.settings)
    tokenizers = load_tokenizers(folder, settings.shared_vocabulary)
    opened = open_converted(folder, settings, tokenizers, choice, device)
    if choice.device == "auto" and device != "cpu" and not _translates(opened):
        return open_converted(folder, settings, tokenizers, choice)
    return opened


def _translates(opened: OpenedModel) -> bool:
    """Return True if the engine can translate; CTranslate2 loads CUDA's libraries only when it first does."""
    try:
        opened.translator.engine.translate([[UNK_ID]], SearchOptions(beam_size=1, max_length=1))
    except MachineError as error:
        log.warning("%s; translating on the CPU", error.message)
        return False
    return True


def open_converted(
    folder: ModelDir,
    settings: TranslationSettings,
    tokenizers: TokenizerPair,
    choice: EngineChoice,
    device: str = "cpu",
) -> OpenedModel:
    """Open the CTranslate2 part of a model folder, which may still be under construction.

    Raises:
        InputError: a file is missing or altered, or there is no shortlist.
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
    vocabulary_map = converted / VOCABULARY_MAP
    if folder.manifest.exists():  # written last, when the folder is complete
        files = (path for path in sorted(converted.iterdir()) if not path.name.startswith("."))  # ignores .DS_Store
        verify_files(folder, converted / "model.bin", converted / "config.json", *files, part=converted)
        check_converted(converted / "model.bin", tokenizers.source.vocab_size, tokenizers.target.vocab_size)
        if vocabulary_map.is_file():
            check_map(vocabulary_map)
    shortlist = settings.shortlist if choice.shortlist is None else choice.shortlist
    if shortlist and not vocabulary_map.is_file():
        hint = "leave out --shortlist, or train with decoding.shortlist set"
        raise InputError(f"{folder.root}: it has no shortlist", hint)
    engine = CTranslate2Engine(
        converted,
        tokenizers,
        settings,
        device=device,
        compute_type=compute_type,
        shortlist=shortlist,
        one_by_one=choice.one_by_one,
    )
    name = f"CTranslate2 {compute_type}{' with shortlist' if shortlist else ''} on {device}"
    log.debug("engine: %s", name)
    translator = Translator(engine, tokenizers, settings, load_preprocessing(folder))
    return OpenedModel(translator, settings, name, tokenizers)


@memory_explained("close other programs")
def _open_with_torch(folders: Sequence[ModelDir], choice: EngineChoice) -> OpenedModel:
    from mt.bundle.model_folder import load_model
    from mt.decoding.ensemble import Ensemble
    from mt.decoding.torch_engine import TorchEngine, torch_dtype
    from mt.system.devices import choose_device

    if choice.shortlist:
        log.warning("--shortlist: only the CTranslate2 engine has shortlists; translating without one")
    device = choose_device(choice.device, "--device")
    loaded = [load_model(folder, device) for folder in folders]
    tokenizers, configs = loaded[0].tokenizers, [model.config for model in loaded]
    for folder, other in zip(folders, loaded, strict=True):
        if SentenceFormat.of(other.config)[:2] != SentenceFormat.of(configs[0])[:2]:
            raise InputError(f"{folder.root}: its model.source_format or target_tag is not that of {folders[0].root}")
        if other.tokenizers.files() != tokenizers.files():
            hint = "models can only translate together when they were trained with the same tokenizer"
            raise InputError(f"{folder.root}: its vocabulary is not that of {folders[0].root}", hint)
    sources, targets, pairs = _common_languages(folders, configs)
    all_settings = [TranslationSettings.of(config) for config in configs]
    _warn_other_searches(folders, all_settings)
    settings = replace(
        all_settings[0],
        max_source_tokens=min(each.max_source_tokens for each in all_settings),
        max_positions=min(each.max_positions for each in all_settings),
        source_lang=sources,
        target_lang=targets,
        pairs=pairs if "," in sources else "",
    )
    dtype = torch_dtype(choice.compute_type)
    models = [model.model.to(dtype) for model in loaded]
    ensemble = f"{len(models)} models together, " if len(models) > 1 else ""
    name = f"{ensemble}torch {str(dtype).removeprefix('torch.')} on {device}"
    graphs = choice.engine == "torch-graphs"
    if graphs and (device.type != "cuda" or len(models) > 1):
        raise InputError("--engine torch-graphs is for one model on a CUDA device", "use --engine torch")
    single = models[0] if len(models) == 1 else None
    engine = TorchEngine(Ensemble(models) if single is None else single, settings.batch_tokens, graphs)
    log.debug("engine: %s", name)
    translator = Translator(engine, tokenizers, settings, load_preprocessing(folders[0]))
    return OpenedModel(translator, settings, name, tokenizers, single)


def _warn_other_searches(folders: Sequence[ModelDir], all_settings: Sequence[TranslationSettings]) -> None:
    for folder, settings in zip(folders, all_settings, strict=True):
        if settings.search != all_settings[0].search:
            log.warning("%s: its decoding settings differ from those of %s, which apply", folder.root, folders[0].root)


def _common_languages(folders: Sequence[ModelDir], configs: "Sequence[Config]") -> tuple[str, str, str]:
    """Return the source languages, the target languages and the pairs of all models, as in `TranslationSettings`."""
    pairs = configs[0].data.pairs
    for folder, config in zip(folders, configs, strict=True):
        pairs = tuple(pair for pair in pairs if pair in config.data.pairs)
        if not pairs:
            these, first = (
                f"from {', '.join(data.source_lang)} to {', '.join(data.target_lang)}"
                for data in (config.data, configs[0].data)
            )
            raise InputError(
                f"{folder.root}: translates {these}, and {folders[0].root} {first}",
                "models can only translate together in the same direction",
            )
    sources, targets = (",".join(dict.fromkeys(side)) for side in zip(*pairs, strict=True))
    return sources, targets, ",".join(map(">".join, pairs))
