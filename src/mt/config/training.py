"""The `training` section of the configuration: batches, optimiser, checkpoints, and when to stop."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from mt.config.base import Fraction, Line, Lines, Rule, Section, SwitchOrAuto, SwitchOrName

_Steps = Annotated[int, Field(ge=1, le=10**9)]
_Part = Literal["source_embedding", "target_embedding", "encoder", "decoder", "output"]
_Layers = Annotated[tuple[Annotated[int, Field(ge=0, le=1000)], ...], Field(strict=False, min_length=1)]


class InitLayers(Section):
    """Layers of another model that training starts from, counted from 0."""

    encoder: _Layers | None = None
    """Of the encoder; null: all of them."""
    decoder: _Layers | None = None
    """Of the decoder; null: all of them."""


class TrainingConfig(Section):
    """The training of the weights."""

    init_from: Line | None = None
    """Run or model folder whose weights training starts from; null: from random weights."""
    init_tokenizer: bool = True
    """Whether a training with init_from keeps that model's tokenizer; otherwise it trains its own, and tokens that
    both have start with their embeddings in that model."""
    init_layers: InitLayers | None = None
    """Layers of that model, counted from 0, with which a shallower one starts, such as {encoder: [0, 2, 4], decoder:
    [0]}; null: all."""
    freeze: Annotated[tuple[_Part, ...], Field(strict=False)] = ()
    """Parts of the model that keep the weights they start with. Tied matrices are frozen together."""
    bidirectional_epochs: Annotated[int, Field(ge=0, le=10**6)] = 0
    """First passes over the data in which half of the pairs, drawn again each time, are learned in the opposite
    direction, from target to source (bidirectional training, Ding et al. 2021); for small corpora."""
    max_tokens: Annotated[int, Field(ge=1, le=10**8)] = 4096
    """Size of a batch, in tokens of its longer side with padding counted."""
    accumulate: Annotated[int, Field(ge=1, le=100_000)] = 1
    """Batches whose gradients are summed before one step."""
    max_steps: _Steps = 100_000
    """Steps after which training ends."""
    max_epochs: Annotated[int | None, Field(ge=1, le=10**6)] = None
    """Passes over the data after which training ends; null: no limit."""
    minutes: Annotated[float | None, Field(gt=0, le=10**7)] = None
    """Time that training should take, with validations, but without preparing the text and the last scores. max_steps
    is replanned from the speed so far: when the warm-up ends, after each validation, and before the first one also
    after 64, 128, 256, ... steps and at lower powers of two after the warm-up. It becomes at most four times the
    configured value, or with max_epochs and a schedule that falls to zero at most that value. A resume repeats the
    recorded plans, or plans at once if minutes or max_steps has changed. null: no limit, as for --set
    training.max_steps=N alone."""
    optimizer: Literal["adam", "adamw", "muon"] = "adam"
    """Rule that updates the weights; adamw can decay them; muon makes the updates of the layers' matrices orthogonal
    and leaves the rest to adamw."""
    learning_rate: Annotated[float, Field(gt=0, le=1000)] = 5e-4
    """Highest learning rate; with schedule noam the factor in front of it."""
    schedule: Literal["inverse_sqrt", "noam", "cosine", "linear", "constant"] = "inverse_sqrt"
    """How the learning rate changes after the warm-up: inverse_sqrt and noam fall with the root of the step, cosine and
    linear to zero at max_steps; constant does not change, best with ema_decay."""
    warmup_steps: Annotated[int, Field(ge=0, le=10**9)] = 4000
    """Steps in which the learning rate rises to its highest."""
    betas: Annotated[tuple[Fraction, Fraction], Field(strict=False)] = (0.9, 0.98)
    """Adam's decay rates for the moving averages of the gradient and of its square."""
    eps: Annotated[float, Field(gt=0, le=1)] = 1e-9
    """Adam's guard against division by zero."""
    weight_decay: Annotated[float, Field(ge=0, le=10)] = 0.0
    """Decoupled weight decay for each step, times the learning rate; adamw, muon."""
    clip_norm: Annotated[float | None, Field(gt=0, le=1e6)] = 1.0
    """Largest norm of the gradient; null leaves it unclipped."""
    label_smoothing: Fraction = 0.1
    """Share of the target's probability spread over all tokens."""
    r_drop: Annotated[float, Field(ge=0, le=1000)] = 0.0
    """Weight of the divergence between two passes that differ in their dropout, R-Drop's alpha (Liang et al. 2021);
    each step costs twice the time. 0: one pass."""
    distill_from: Lines = ()
    """Run or model folders of teachers: their mean probabilities of each token are learned along with the text
    (word-level knowledge distillation, Kim and Rush 2016). They need the student's vocabulary, which is the first
    one's unless init_from gives one; each step costs a forward pass of each. []: none."""
    distill_weight: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Weight of the teachers' probabilities in the training target; the text has the rest."""
    guided_alignment: Annotated[float, Field(ge=0, le=1000)] = 0.0
    """Weight of a loss that teaches one attention head the word alignment of the training text, which is computed
    first (guided alignment, Chen et al. 2016, Garg et al. 2019); 0.1 is a good value. The model then aligns
    words for --alignment and for tags in documents. 0: none."""
    ema_decay: Annotated[float | None, Field(ge=0, lt=1)] = None
    """Decay of an exponential moving average of the weights, which is then validated and becomes the finished model;
    it is at most (1 + t) / (10 + t) at step t; null: none."""
    sharding: Literal["none", "ddp", "fsdp"] = "ddp"
    """How several processes (torchrun) train together: ddp: each has the whole model; fsdp: each has a shard of it,
    for models too large for one GPU; none: they do not."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """Number format of matrix products, with weights in fp32; fp16 scales the loss. auto: on a GPU bf16 or,
    without it, fp16 where it has tensor cores; on a processor with AVX512-BF16 or AMX (listed by `lscpu`) the faster
    of bf16 and fp32, measured at the start of the run; elsewhere fp32."""
    deterministic: bool = False
    """Whether only deterministic operators are used, so that a resume on a GPU is exact to the bit, too; slower. On a
    CPU it always is."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to compute; auto takes a GPU if there is one."""
    compile: SwitchOrAuto = "auto"
    """Whether the model's layers are compiled with torch.compile, which delays the first steps; auto: on a GPU
    (cuda), from d_model 1024 on."""
    cuda_graphs: bool = False
    """Whether batches are filled up to a few shapes, whose passes are replayed as CUDA graphs: for batches of a few
    thousand tokens on an NVIDIA GPU. One process only; elsewhere it changes nothing."""
    recompute: bool = False
    """Whether the backward pass computes the activations of each layer again instead of keeping them, which takes a
    third more arithmetic and much less memory."""
    log_every: _Steps = 50
    """Steps between two lines of the log."""
    validate_every: _Steps = 1000
    """Steps between two validations."""
    save_every: Annotated[int | None, Field(ge=1, le=10**9)] = None
    """Steps between two checkpoints, besides those of validations; null: only these."""
    keep_checkpoints: Annotated[int, Field(ge=2, le=100_000)] = 2
    """Number of newest checkpoints that are kept."""
    best_metric: Literal["bleu", "loss"] = "bleu"
    """Score on the validation text that chooses the best weights."""
    patience: Annotated[int | None, Field(ge=1, le=10**6)] = 10
    """Validations without improvement that end training; null: never."""
    final_weights: Literal["best", "last", "average", "average_best"] = "best"
    """Which weights the finished model has; average: the mean of the newest checkpoints, average_best: of the best on
    the validation text."""
    average_checkpoints: Annotated[int, Field(ge=2, le=1000)] = 5
    """Number of checkpoints to average when final_weights is an average."""
    sample_translations: Annotated[int, Field(ge=0, le=1000)] = 3
    """Translated sentences shown at each validation."""
    tensorboard: bool = True
    """Whether to log for TensorBoard too, where that package is installed."""
    wandb: SwitchOrName = False
    """Whether to log to Weights & Biases, or the name of the project there; needs the package wandb."""
    report: bool = True
    """Whether report.html is written into the run folder when training has finished."""

    @property
    def ends_at_zero(self) -> bool:
        """Return True if the learning rate falls to zero at max_steps."""
        return self.schedule in ("cosine", "linear")

    def broken_rules(self) -> Iterator[Rule]:
        if self.optimizer == "adam" and self.weight_decay > 0:
            reason = "adam has no weight decay here; set optimizer: adamw, or weight_decay: 0.0"
            yield Rule(("weight_decay", "optimizer"), reason)
        if self.sharding == "fsdp" and self.optimizer == "muon":
            reason = "muon needs whole matrices, which fsdp shards; set sharding: ddp, or optimizer: adamw"
            yield Rule(("sharding", "optimizer"), reason)
        if self.r_drop > 0 and self.distill_from:
            reason = "R-Drop and teachers exclude each other; set r_drop: 0, or distill_from: []"
            yield Rule(("r_drop", "distill_from"), reason)
        if self.bidirectional_epochs > 0 and self.distill_from:
            reason = "teachers translate in one direction only; set bidirectional_epochs: 0, or distill_from: []"
            yield Rule(("bidirectional_epochs", "distill_from"), reason)
        if self.cuda_graphs and (self.r_drop > 0 or self.distill_from or self.recompute or self.guided_alignment > 0):
            reason = "graphs need the plain loss and all activations; set cuda_graphs: false"
            yield Rule(("cuda_graphs", "r_drop", "distill_from", "recompute", "guided_alignment"), reason)
        if self.guided_alignment > 0 and self.bidirectional_epochs > 0:
            reason = "reversed pairs have no word alignment; set guided_alignment: 0, or bidirectional_epochs: 0"
            yield Rule(("guided_alignment", "bidirectional_epochs"), reason)
        if self.init_layers is not None and self.init_from is None:
            yield Rule(("init_layers", "init_from"), "there is no model to take layers from; set init_from")
        yield from self._schedule_rules()

    def _schedule_rules(self) -> Iterator[Rule]:
        name = self.schedule
        if self.ends_at_zero and self.warmup_steps >= self.max_steps:
            yield Rule(
                ("warmup_steps", "max_steps", "schedule"),
                f"the {name} schedule falls from the end of the warm-up ({self.warmup_steps}) to max_steps "
                f"({self.max_steps}), so warmup_steps must be smaller",
            )
        if self.ends_at_zero and self.max_epochs is not None and "max_steps" not in self.model_fields_set:
            yield Rule(
                ("max_epochs", "max_steps", "schedule"),
                f"the {name} schedule falls until max_steps ({self.max_steps:,}, which is not set here), and "
                "max_epochs may end the training long before; set max_steps to the steps of that many epochs",
            )
        if name in ("inverse_sqrt", "noam") and self.warmup_steps == 0:
            reason = f"the {name} schedule is defined by its warm-up, so warmup_steps must be at least 1"
            yield Rule(("warmup_steps", "schedule"), reason)
        rate = self.learning_rate
        if name == "noam" and rate < 0.01:
            reason = f"with the noam schedule learning_rate is a factor, usually 1.0; {rate:g} would train nothing"
            yield Rule(("learning_rate", "schedule"), reason)
        if name != "noam" and rate > 0.5:
            reason = f"{rate:g} diverges with the {name} schedule; only for noam is it a factor"
            yield Rule(("learning_rate", "schedule"), reason)
