"""The parameters of a training on a formal language, and their allowed combinations."""

from dataclasses import dataclass
from typing import ClassVar

from attnsweep.workloads.attention.attention import check_heads
from attnsweep.workloads.formal_languages.encoder import ENCODER_SCALES
from attnsweep.workloads.formal_languages.language import REPRESENTATIONS, Language
from attnsweep.workloads.formal_languages.languages import LANGUAGES
from attnsweep.workloads.parameters import TrainingParameters, Value, parameter, with_default

_LADDER = (10, 30, 100, 300, 1000)
_LONGEST = {"kinds": 1000, "positions": 30}
"""The default longest test length; with a token per position, 1,000 would need a million logits."""


@dataclass(frozen=True, kw_only=True)
class FormalLanguagesParameters(TrainingParameters):
    """The defaults are those of Chiang & Cholak 2022, figure 4."""

    init_sigma: float | None = with_default("init_sigma", None)
    optimizer: str = with_default("optimizer", "adam")
    learning_rate: float = with_default("learning_rate", 3e-4)
    n_steps: int = with_default("n_steps", 10_000)
    dtype: str = with_default("dtype", "float32", choices=("float32", "float64"))

    language: str = parameter("first", "the language to be learned", choices=tuple(LANGUAGES), static=True)
    train_length: int = parameter(10, "length of the training strings, symbols without CLS", low=1, high=100_000)
    n_epochs: int | None = parameter(
        None, "epochs, with a probe after each; null = n_steps with the default probes", low=1, high=2**20, static=True
    )
    steps_per_epoch: int = parameter(100, "steps per epoch, if n_epochs is given", low=1, high=2**11, static=True)
    batch_size: int = parameter(1, "strings per step", low=1, high=1_000_000, static=True)
    eval_batch_size: int = parameter(1000, "held-out strings for eval_loss", low=1, high=1_000_000, static=True)
    test_batch_size: int = parameter(100, "strings at each test length", low=1, high=1_000_000, static=True)
    longest_test_length: int | None = parameter(
        None, "longest test strings; null = 1000 with tokens of kinds, else 30", low=1, high=100_000, static=True
    )
    test_ladder: bool = parameter(True, "whether to test also at those of 10, 30, 100, ... below it", static=True)
    fresh_test_strings: bool = parameter(False, "each probe draws new test strings, as in the paper", static=True)
    tokens: str = parameter(
        "auto",
        "one token for each kind of symbol with its count, or for each position; auto = kinds if the language has few",
        choices=("auto", *REPRESENTATIONS),
        static=True,
    )

    n_layers: int = parameter(2, "encoder layers", low=1, high=100, static=True)
    n_heads: int = parameter(1, "attention heads of a layer", low=1, high=1000, static=True)
    d_model: int = parameter(16, "width of the model", low=1, high=10_000, static=True)
    d_ffn: int = parameter(64, "width of the feed-forward part", low=1, high=100_000, static=True)
    layer_norm: bool = parameter(True, "whether layers are normalized", static=True)
    layer_norm_eps: float = parameter(1e-5, "added to the variance, inside the root; may be 0", low=0.0)
    attention_scale: str = parameter(
        "inv_sqrt_d",
        "factor of the logits; d = width of a head, n = positions with CLS; log_n_query scales queries without bias",
        choices=ENCODER_SCALES,
    )

    variant_field: ClassVar[str | None] = "language"

    @property
    def of(self) -> Language:
        return LANGUAGES[self.language]

    @property
    def representation(self) -> str:
        """How a string becomes tokens (`tokenize`)."""
        if self.tokens != "auto":
            return self.tokens
        return "positions" if self.of.n_marked_positions is None else "kinds"

    @property
    def test_lengths(self) -> tuple[int, ...]:
        longest = self.longest_test_length or _LONGEST[self.representation]
        rungs = (length for length in _LADDER if self.test_ladder and length < longest)
        return (*rungs, longest)

    def static_key(self) -> tuple[Value, ...]:
        """With a token per position, shapes depend on `train_length` too."""
        key = super().static_key()
        return (*key, self.train_length) if self.representation == "positions" else key

    def __post_init__(self) -> None:
        self._follow_epochs()
        check_heads(self.d_model, self.n_heads)
        if self.d_model < self.of.n_position_features:
            expected = f"at least {self.of.n_position_features}, one for each number that describes a position"
            raise self.refused("d_model", expected, "raise d_model")
        if self.tokens == "kinds" and self.of.n_marked_positions is None:
            expected = f"positions or auto: kinds needs positions with equal features, which {self.language} has not"
            raise self.refused("tokens", expected, "set tokens=positions, or leave out the parameter tokens")

    def _follow_epochs(self) -> None:
        declared = self.declared()
        if self.n_epochs is None:
            if self.steps_per_epoch != declared["steps_per_epoch"].default:
                expected = f"the default {declared['steps_per_epoch'].default}, because n_epochs is null"
                raise self.refused("steps_per_epoch", expected, "set n_epochs, or remove steps_per_epoch")
            return
        n_steps = self.n_epochs * self.steps_per_epoch
        if self.n_steps not in (n_steps, declared["n_steps"].default):
            expected = f"{n_steps}, because n_epochs={self.n_epochs} and steps_per_epoch={self.steps_per_epoch}"
            raise self.refused("n_steps", expected, "remove n_steps or n_epochs")
        # The engine reads how many steps it takes.
        object.__setattr__(self, "n_steps", n_steps)
