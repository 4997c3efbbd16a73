"""The `training` section: batches, optimiser, checkpoints, and when to stop."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from mt.config.base import Line, Lines, Rule, Section, SwitchOrName, enforce


class TrainingConfig(Section):
    """How the weights are learned."""

    init_from: Annotated[
        Line | None,
        Field(description="Run or model folder whose weights training starts from; null: from random weights."),
    ] = None
    init_tokenizer: Annotated[
        bool,
        Field(
            description="Whether a training with init_from keeps that model's tokenizer; otherwise it trains its own, "
            "and pieces that both have start with the embeddings they had."
        ),
    ] = True

    bidirectional_epochs: Annotated[
        int,
        Field(
            ge=0,
            le=10**6,
            description="First passes over the data in which half of the pairs, others each time, are learned the "
            "other way round: from target to source (bidirectional training, Ding et al. 2021); for little text.",
        ),
    ] = 0
    max_tokens: Annotated[
        int,
        Field(ge=1, le=10**8, description="Size of a batch, in tokens of its longer side with padding counted."),
    ] = 4096
    accumulate: Annotated[
        int, Field(ge=1, le=100_000, description="Batches whose gradients are summed before one step.")
    ] = 1
    max_steps: Annotated[int, Field(ge=1, le=10**9, description="Steps after which training ends.")] = 100_000
    max_epochs: Annotated[
        int | None, Field(ge=1, le=10**6, description="Passes over the data after which training ends; null: no limit.")
    ] = None
    optimizer: Annotated[
        Literal["adam", "adamw", "muon"],
        Field(
            description="Rule that updates the weights; adamw can decay them; muon makes the updates of the layers' "
            "matrices orthogonal and leaves the rest to adamw."
        ),
    ] = "adam"
    learning_rate: Annotated[
        float,
        Field(gt=0, le=1000, description="Highest learning rate; with schedule noam the factor in front of it."),
    ] = 5e-4
    schedule: Annotated[
        Literal["inverse_sqrt", "noam", "cosine", "linear", "constant"],
        Field(description="How the learning rate falls after the warm-up."),
    ] = "inverse_sqrt"
    warmup_steps: Annotated[
        int, Field(ge=0, le=10**9, description="Steps in which the learning rate rises to its highest.")
    ] = 4000
    betas: Annotated[
        tuple[
            Annotated[float, Field(ge=0, lt=1)],
            Annotated[float, Field(ge=0, lt=1)],
        ],
        Field(strict=False, description="Adam's decay of its averages of the gradient and of its square."),
    ] = (0.9, 0.98)
    eps: Annotated[float, Field(gt=0, le=1, description="Adam's guard against division by zero.")] = 1e-9
    weight_decay: Annotated[
        float,
        Field(ge=0, le=10, description="Decoupled weight decay for each step, times the learning rate; adamw, muon."),
    ] = 0.0
    clip_norm: Annotated[
        float | None, Field(gt=0, le=1e6, description="Largest norm of the gradient; null leaves it unclipped.")
    ] = 1.0
    label_smoothing: Annotated[
        float, Field(ge=0, lt=1, description="Share of the target's probability spread over all tokens.")
    ] = 0.1
    r_drop: Annotated[
        float,
        Field(
            ge=0,
            le=1000,
            description="Weight of the divergence between two passes that differ in their dropout, R-Drop's alpha "
            "(Liang et al. 2021); each step costs twice the time. 0: one pass.",
        ),
    ] = 0.0
    distill_from: Annotated[
        Lines,
        Field(
            description="Run or model folders of teachers: beside the text, their mean probability of each word is "
            "learned (word-level knowledge distillation, Kim and Rush 2016). They need the student's vocabulary, which "
            "is the first one's unless init_from gives one; each step costs a forward pass of each. []: none."
        ),
    ] = ()
    distill_weight: Annotated[
        float, Field(ge=0, le=1, description="Share of the teachers' probabilities in what is learned.")
    ] = 0.5
    ema_decay: Annotated[
        float | None,
        Field(
            ge=0,
            lt=1,
            description="Decay of an exponential moving average of the weights, which is then what is validated and "
            "what the finished model has; at step t never more than (1 + t) / (10 + t); null: none.",
        ),
    ] = None
    sharding: Annotated[
        Literal["none", "ddp", "fsdp"],
        Field(
            description="How several processes (torchrun) train together: ddp: each has the whole model; fsdp: "
            "each has a part of it, for models too large for one GPU; none: they do not."
        ),
    ] = "ddp"
    precision: Annotated[
        Literal["auto", "fp32", "bf16"],
        Field(
            description="Number format of the computation; auto: bf16 on a GPU that has it, else fp32. bf16 is also "
            "faster on processors with AVX512-BF16 (`lscpu` says so)."
        ),
    ] = "auto"
    device: Annotated[
        Literal["auto", "cpu", "cuda", "mps"], Field(description="Where to compute; auto takes a GPU if there is one.")
    ] = "auto"
    compile: Annotated[bool, Field(description="Whether torch.compile translates the model first.")] = False
    log_every: Annotated[int, Field(ge=1, le=10**9, description="Steps between two lines of the log.")] = 50
    validate_every: Annotated[int, Field(ge=1, le=10**9, description="Steps between two validations.")] = 1000
    save_every: Annotated[
        int | None,
        Field(
            ge=1, le=10**9, description="Steps between two checkpoints, besides those of validations; null: only these."
        ),
    ] = None
    keep_checkpoints: Annotated[
        int, Field(ge=2, le=100_000, description="Number of newest checkpoints that are kept.")
    ] = 2
    best_metric: Annotated[
        Literal["bleu", "loss"], Field(description="Score on the validation text that tells which weights are best.")
    ] = "bleu"
    patience: Annotated[
        int | None,
        Field(ge=1, le=10**6, description="Validations without improvement that end training; null: never."),
    ] = 10
    final_weights: Annotated[
        Literal["best", "last", "average", "average_best"],
        Field(
            description="Which weights the finished model has; average: the mean of the newest checkpoints, "
            "average_best: of the best on the validation text."
        ),
    ] = "best"
    average_checkpoints: Annotated[
        int,
        Field(ge=2, le=1000, description="Checkpoints to take the mean of when final_weights is an average."),
    ] = 5
    sample_translations: Annotated[
        int, Field(ge=0, le=1000, description="Translated sentences shown at each validation.")
    ] = 3
    tensorboard: Annotated[
        bool, Field(description="Whether to log for TensorBoard too, where that package is installed.")
    ] = True
    wandb: Annotated[
        SwitchOrName,
        Field(
            description="Whether to log to Weights & Biases, or the name of the project there; needs the package wandb."
        ),
    ] = False
    report: Annotated[
        bool, Field(description="Whether report.html is written into the run folder when training has finished.")
    ] = True

    @model_validator(mode="after")
    def _rules(self) -> Self:
        enforce(*self._what_goes_together(), *self._what_schedules_need())
        return self

    def _what_goes_together(self) -> tuple[Rule, ...]:
        return (
            Rule(
                self.optimizer == "adam" and self.weight_decay > 0,
                ("weight_decay", "optimizer"),
                "adam has no weight decay here; set optimizer: adamw, or weight_decay: 0.0",
            ),
            Rule(
                self.sharding == "fsdp" and self.optimizer == "muon",
                ("sharding", "optimizer"),
                "muon needs whole matrices, which fsdp cuts up; set sharding: ddp, or optimizer: adamw",
            ),
            Rule(
                self.r_drop > 0 and len(self.distill_from) > 0,
                ("r_drop", "distill_from"),
                "a training has two passes of its own or teachers, not both; set r_drop: 0, or distill_from: []",
            ),
            Rule(
                self.bidirectional_epochs > 0 and len(self.distill_from) > 0,
                ("bidirectional_epochs", "distill_from"),
                "teachers translate one way only; set bidirectional_epochs: 0, or distill_from: []",
            ),
        )

    def _what_schedules_need(self) -> tuple[Rule, ...]:
        ends_at_max_steps = self.schedule in ("cosine", "linear")
        divides_by_warmup = self.schedule in ("inverse_sqrt", "noam")
        return (
            Rule(
                ends_at_max_steps and self.warmup_steps >= self.max_steps,
                ("warmup_steps", "max_steps", "schedule"),
                f"the {self.schedule} schedule falls from the end of the warm-up ({self.warmup_steps}) to max_steps "
                f"({self.max_steps}), so warmup_steps must be smaller",
            ),
            Rule(
                ends_at_max_steps and self.max_epochs is not None and "max_steps" not in self.model_fields_set,
                ("max_epochs", "max_steps", "schedule"),
                f"the {self.schedule} schedule falls until max_steps ({self.max_steps:,}, which is not set here), and "
                "max_epochs may end the training long before; set max_steps to the steps of so many epochs",
            ),
            Rule(
                divides_by_warmup and self.warmup_steps == 0,
                ("warmup_steps", "schedule"),
                f"the {self.schedule} schedule is defined by its warm-up, so warmup_steps must be at least 1",
            ),
            Rule(
                self.schedule == "noam" and self.learning_rate < 0.01,
                ("learning_rate", "schedule"),
                f"with the noam schedule learning_rate is a factor, usually 1.0; {self.learning_rate:g} "
                "would train nothing",
            ),
            Rule(
                self.schedule != "noam" and self.learning_rate > 0.5,
                ("learning_rate", "schedule"),
                f"{self.learning_rate:g} diverges with the {self.schedule} schedule; only for noam is it a factor",
            ),
        )
