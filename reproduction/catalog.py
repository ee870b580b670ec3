"""The catalog of reproductions that attnsweep ships. It imports a reproduction only when that runs."""

import pkgutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from attnsweep.workloads.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from attnsweep.reproduction.comparison import Comparison


@dataclass(frozen=True, kw_only=True, slots=True)
class Reproduction:
    """A published figure or table, and how `attnsweep reproduce` repeats it.

    A package adds its own to `attnsweep reproduce` by an entry point of the group `attnsweep.reproductions` that names
    a tuple of `Reproduction` objects.

    Attributes:
        name: The name that the user types.
        title: The subject of the figure or table.
        source: The publication, and the place in it.
        cost: The time that it takes on 2 CPU cores.
        function: `module:function`, a function `reproduce(directory, console) -> Comparison` that writes its sweeps
            and figures into the directory. With `sweep` it is `compare(sweep, directory) -> Comparison`, which reads
            the finished sweep.
        sweep: The name of the shipped sweep that is run, resumed or read first; empty if there is none.
        engine: The engine with which the sweep's numbers in the documents were measured.
        full: `module:function` of the reproduction at the size of the publication, for `--full`: a function
            `reproduce`; empty if `function` has that size.
        of_corpus: `module:function` that also takes the user's parallel text, for `--corpus FILE`; empty if there is
            none.
        corpus: The path of that text.
    """

    name: str
    title: str
    source: str
    cost: str
    function: str
    sweep: str = ""
    engine: Literal["auto", "vmapped"] = "vmapped"
    full: str = ""
    of_corpus: str = ""
    corpus: str | None = None

    def chosen(self, *, full: bool, corpus: str | None) -> "Reproduction":
        """Returns the reproduction with the options of the command line filled in.

        Raises:
            UserError: For an option that it does not support, or for both options.
        """
        for option, is_given, has_it in (("--full", full, self.full), ("--corpus", corpus is not None, self.of_corpus)):
            if is_given and not has_it:
                raise UserError(
                    option,
                    given=self.name,
                    expected=f"a reproduction that has the option {option}",
                    fix=f"leave out {option}",
                )
        if full and corpus is not None:
            raise UserError(
                "--corpus", given=corpus, expected="--corpus without --full", fix="leave out --full or --corpus"
            )
        if corpus is not None:
            return replace(self, function=self.of_corpus, sweep="", corpus=corpus)
        return replace(self, function=self.full, sweep="") if full else self

    def run(self, directory: Path, console: "Console") -> "Comparison":
        """Runs the reproduction, and writes the compared values to `<name>.json` beside the figures."""
        function = pkgutil.resolve_name(self.function)
        comparison: Comparison
        if self.sweep:
            from attnsweep.reproduction.trained import swept

            comparison = function(swept(self.sweep, directory, console, self.engine), directory)
        else:
            comparison = function(directory, console, *(() if self.corpus is None else (self.corpus,)))
        comparison.write(directory / f"{self.name}.json")
        return comparison


_SHIN = "Shin & Matzinger 2025"
_CHIANG = "Chiang & Cholak 2022"
_BOUE = "Boue 2025"
_ZEROS = "attnsweep, docs/zeros.md"
_MISSION = "attnsweep, docs/mission.md"
_GPT = "attnsweep, docs/gpt.md"
_INTERVENTIONS = "attnsweep, docs/interventions.md"
_TRANSLATION = "attnsweep, docs/translation.md"
_FORKS = "attnsweep, docs/forks.md"

REPRODUCTIONS = (
    Reproduction(
        name="shin-fig1",
        title="the learned k^t q of solution 2 beside q*",
        source=f"{_SHIN}, section 4.1, Figure 1",
        cost="3 min",
        function="attnsweep.reproduction.shin.figures:compare_fig1",
        sweep="shin_solution_2",
    ),
    Reproduction(
        name="shin-fig2",
        title="log-MSE of the combined model's four flavours",
        source=f"{_SHIN}, section 4.1, Figure 2",
        cost="5 min",
        function="attnsweep.reproduction.shin.figures:compare_fig2",
        sweep="shin_flavours",
        full="attnsweep.reproduction.shin.figures:reproduce_fig2_full",
    ),
    Reproduction(
        name="shin-fig3",
        title="attention weights of the four flavours",
        source=f"{_SHIN}, section 4.1, Figure 3",
        cost="5 min",
        function="attnsweep.reproduction.shin.figures:compare_fig3",
        sweep="shin_flavours",
        full="attnsweep.reproduction.shin.figures:reproduce_fig3_full",
    ),
    Reproduction(
        name="shin-zeros",
        title="equations 3.7-3.9, 3.18, 3.33, 3.54, the line before 3.71; stationary families found by search",
        source=f"{_SHIN}, section 3",
        cost="1 min",
        function="attnsweep.reproduction.shin.zeros:reproduce",
    ),
    Reproduction(
        name="shin-handmade",
        title="the hand-programmed solutions 1-3, as printed and corrected",
        source=f"{_SHIN}, sections 2.1-2.3",
        cost="10 s",
        function="attnsweep.reproduction.shin.handmade:reproduce",
    ),
    Reproduction(
        name="chiang-fig2",
        title="cross-entropy of the exact transformers for FIRST and PARITY by length",
        source=f"{_CHIANG}, section 4, Figure 2",
        cost="2 min",
        function="attnsweep.reproduction.chiang.fig2:reproduce",
    ),
    Reproduction(
        name="chiang-fig3",
        title="exact PARITY when the weight that counts the 1s is off",
        source=f"{_CHIANG}, section 4, Figure 3",
        cost="1 min",
        function="attnsweep.reproduction.chiang.fig3:reproduce",
    ),
    Reproduction(
        name="chiang-flawed-first",
        title="FIRST by one layer that fails on long strings, and what log n mends",
        source=f"{_CHIANG}, section 5.2",
        cost="1 min",
        function="attnsweep.reproduction.chiang.flawed_first:reproduce",
    ),
    Reproduction(
        name="chiang-confidence",
        title="transformers for FIRST and PARITY whose cross-entropy is as low as wished, at every length",
        source=f"{_CHIANG}, Propositions 2 and 3",
        cost="1 min",
        function="attnsweep.reproduction.chiang.confidence:reproduce",
    ),
    Reproduction(
        name="chiang-fig4",
        title="FIRST learned at lengths 10 to 300, tested at 1,000, with and without log n",
        source=f"{_CHIANG}, section 5.3, Figure 4",
        cost="4 min",
        function="attnsweep.reproduction.chiang.fig4:compare",
        sweep="chiang_fig4",
        engine="auto",
    ),
    Reproduction(
        name="chiang-fig4-logits",
        title="the same with the logits times log n, as in the paper's equation 2",
        source=f"{_CHIANG}, section 5.3, equation 2",
        cost="2 min",
        function="attnsweep.reproduction.chiang.fig4:compare",
        sweep="chiang_fig4_logits",
        engine="auto",
    ),
    Reproduction(
        name="chiang-fig4-long",
        title="the same for 1,000 epochs instead of 100",
        source=f"{_CHIANG}, section 5.3, Figure 4",
        cost="25 min",
        function="attnsweep.reproduction.chiang.fig4:compare",
        sweep="chiang_fig4_long",
        engine="auto",
    ),
    Reproduction(
        name="chiang-parity",
        title="PARITY learned with the set-up of Figure 4",
        source=f"{_CHIANG}, section 3.1",
        cost="5 min",
        function="attnsweep.reproduction.chiang.fig4:compare_parity",
        sweep="chiang_parity",
    ),
    Reproduction(
        name="chiang-table1",
        title="translators trained on short sentences, tested on long ones, with and without log-length scaling",
        source=f"{_CHIANG}, section 6, Table 1",
        cost="10 min",
        function="attnsweep.reproduction.chiang.table1:compare",
        sweep="translation_lengths",
        of_corpus="attnsweep.reproduction.chiang.table1:reproduce_corpus",
    ),
    Reproduction(
        name="conti-table6",
        title="distance of eight heads to structured families, w = 3, num_pos = 2",
        source="Conti 2024, table 6",
        cost="1 min",
        function="attnsweep.reproduction.conti.tables:reproduce_table_6",
    ),
    Reproduction(
        name="conti-table7",
        title="distance of eight heads to structured families, w = 10, num_pos = 1",
        source="Conti 2024, table 7",
        cost="1 min",
        function="attnsweep.reproduction.conti.tables:reproduce_table_7",
    ),
    Reproduction(
        name="conti-heads",
        title="what the heads of a trained translator look at, with 1 head a layer and with 8",
        source="Conti 2024, Figures 1 and 2",
        cost="2 min",
        function="attnsweep.reproduction.conti.heads:reproduce",
    ),
    Reproduction(
        name="boue-counts",
        title="parameters of a GPT, whole, tied and with low-rank updates; cache and equivariance",
        source=f"{_BOUE}, sections 6 to 8",
        cost="10 s",
        function="attnsweep.reproduction.boue.counts:reproduce",
    ),
    Reproduction(
        name="boue-gradients",
        title="layers and gradients of a GPT by hand, beside autograd's",
        source=f"{_BOUE}, Tables 2 and 3",
        cost="10 s",
        function="attnsweep.reproduction.boue.gradients:reproduce",
    ),
    Reproduction(
        name="cyclic-words",
        title="the gradient of an encoder as readable words, beside autograd's; how many there are",
        source="Cyclic 4-tensor rotations underly the training of a GPT-style encoder (anonymous note)",
        cost="5 s",
        function="attnsweep.reproduction.cyclic.note:reproduce",
    ),
    Reproduction(
        name="zeros-positions",
        title="system P: the zero, the mean plateau, the valley at infinity, softmax saturation",
        source=_ZEROS,
        cost="1 min",
        function="attnsweep.reproduction.studies.positions:reproduce",
    ),
    Reproduction(
        name="metric",
        title="k^t q as one matrix or as k and q: runaways and escape times of system P against sigma",
        source=_ZEROS,
        cost="8 min",
        function="attnsweep.reproduction.studies.metric:reproduce",
    ),
    Reproduction(
        name="metric-full",
        title="the stuck border of the full models with k and q, and with k^t q as one matrix",
        source=_ZEROS,
        cost="6 min",
        function="attnsweep.reproduction.studies.precision:reproduce_forms",
    ),
    Reproduction(
        name="precision",
        title="below which initialization rounding holds a training at the zero, by floating-point type",
        source=_ZEROS,
        cost="5 min",
        function="attnsweep.reproduction.studies.precision:reproduce",
    ),
    Reproduction(
        name="zeros-full",
        title="where 2,048 full models get stuck, and how far that depends on the cut-offs",
        source=_ZEROS,
        cost="45 min",
        function="attnsweep.reproduction.studies.full_models:compare",
        sweep="stuck_full",
    ),
    Reproduction(
        name="zeros-kicked",
        title="whether zeros and plateaus of the full models fall when they are kicked, in float64",
        source=_ZEROS,
        cost="55 min",
        function="attnsweep.reproduction.studies.full_models:reproduce_kicks",
    ),
    Reproduction(
        name="zeros-promoted",
        title="which zeros of float32 are zeros of the loss, and where its border lies without rounding",
        source=_ZEROS,
        cost="15 min",
        function="attnsweep.reproduction.studies.promoted:reproduce",
    ),
    Reproduction(
        name="mission-pairs",
        title="initialization, epsilon, attention's scale and precision at once: what decides who ends at the zero",
        source=_MISSION,
        cost="30 min",
        function="attnsweep.reproduction.studies.mission_pairs:compare",
        sweep="mission_pairs",
    ),
    Reproduction(
        name="mission-samplers",
        title="the same by TPE and by the sampler boundary, beside random trials",
        source=_MISSION,
        cost="15 min",
        function="attnsweep.reproduction.studies.mission_pairs:reproduce_samplers",
    ),
    Reproduction(
        name="mission-translators",
        title="initialization, epsilon, attention's scale and structure at once: loss of translators, roles of heads",
        source=_MISSION,
        cost="45 min",
        function="attnsweep.reproduction.studies.mission_translators:compare",
        sweep="mission_random",
    ),
    Reproduction(
        name="gpt-stages",
        title="when the attention of a GPT begins to select, by initialization, epsilon, form and tying",
        source=_GPT,
        cost="6 min",
        function="attnsweep.reproduction.studies.gpt:compare_stages",
        sweep="gpt_stages",
    ),
    Reproduction(
        name="induction-changed",
        title="why LayerNorm's epsilon decides whether induction heads emerge: starts and steps changed",
        source=_GPT,
        cost="4 min",
        function="attnsweep.reproduction.studies.gpt:reproduce_changes",
    ),
    Reproduction(
        name="induction-needs",
        title="what induction heads need: hazard ratios with clamped heads, frozen parameters and a kick",
        source=_INTERVENTIONS,
        cost="15 min",
        function="attnsweep.reproduction.studies.needs:compare_induction",
        sweep="induction_needs",
        engine="auto",
    ),
    Reproduction(
        name="translation-needs",
        title="what translators and their heads need: hazard ratios with clamped heads and frozen parameters",
        source=_INTERVENTIONS,
        cost="3 min",
        function="attnsweep.reproduction.studies.needs:compare_translation",
        sweep="translation_needs",
        engine="auto",
    ),
    Reproduction(
        name="markov-needs",
        title="what statistical induction heads need: hazard ratios with clamped, scaled and frozen attention",
        source=_INTERVENTIONS,
        cost="3 min",
        function="attnsweep.reproduction.studies.needs:compare_markov",
        sweep="markov_needs",
        engine="auto",
    ),
    Reproduction(
        name="translator-heads",
        title="which roles the heads of 512 small translators take, and when",
        source=_TRANSLATION,
        cost="50 min",
        function="attnsweep.reproduction.studies.translators:compare_heads",
        sweep="head_roles",
    ),
    Reproduction(
        name="positional-heads",
        title="whether larger translators, longer training or dropout make positional heads",
        source=_TRANSLATION,
        cost="10 h",
        function="attnsweep.reproduction.studies.translators:compare_positional",
        sweep="positional_heads",
    ),
    Reproduction(
        name="positional-power",
        title="which share of heads with attention planted at one offset is labelled positional",
        source=_TRANSLATION,
        cost="2 min",
        function="attnsweep.reproduction.studies.translators:reproduce_power",
    ),
    Reproduction(
        name="translator-structure",
        title="translators whose self-attention is restricted to a band and rare-token columns",
        source=_TRANSLATION,
        cost="15 min",
        function="attnsweep.reproduction.studies.translators:compare_structure",
        sweep="attention_structure",
    ),
    Reproduction(
        name="zhang-regression",
        title="in-context linear regression with linear attention: one drop, or a staircase",
        source="Zhang, Singh, Latham & Saxe 2025",
        cost="3 min",
        function="attnsweep.reproduction.field.in_context_regression:compare",
        sweep="in_context_regression",
    ),
    Reproduction(
        name="edelman-markov",
        title="in-context Markov chains: uniform, unigram and bigram stages, by the kind of chain and the context",
        source="Edelman, Edelman, Goel, Malach & Tsilivis 2024",
        cost="5 min",
        function="attnsweep.reproduction.field.markov_chains:compare",
        sweep="markov_chains",
        full="attnsweep.reproduction.field.markov_chains:reproduce_full",
    ),
    Reproduction(
        name="gopalani-plateau",
        title="the plateau of a moving-window sum: repetition, collapse, and attention biased to what is needed",
        source="Gopalani & Hu 2025, Figures 2 to 4",
        cost="4 min",
        function="attnsweep.reproduction.field.abrupt_learning:compare",
        sweep="abrupt_learning",
        full="attnsweep.reproduction.field.abrupt_learning:reproduce_full",
    ),
    Reproduction(
        name="gopalani-starts",
        title="the same plateau by the standard deviation of the initialization",
        source="attnsweep, docs/problems/abrupt_learning.md",
        cost="3 min",
        function="attnsweep.reproduction.field.abrupt_learning:compare_starts",
        sweep="abrupt_learning_starts",
    ),
    Reproduction(
        name="gopalani-tasks",
        title="the same plateau of copies, reversals and prefix sums",
        source="Gopalani & Hu 2025, the configurations of its repository",
        cost="4 min",
        function="attnsweep.reproduction.field.abrupt_learning:compare_tasks",
        sweep="abrupt_learning_tasks",
    ),
    Reproduction(
        name="behrens-histogram",
        title="who learns to count letters, by the widths of embedding and hidden layer",
        source="Behrens, Biggio & Zdeborova 2024, Figure 1",
        cost="5 min",
        function="attnsweep.reproduction.field.histogram:compare",
        sweep="histogram",
        full="attnsweep.reproduction.field.histogram:reproduce_full",
    ),
    Reproduction(
        name="manir-weight-decay",
        title="which weight decays let a transformer that knows its pairs learn to add, and how much later",
        source="Manir & Rupa 2026, arXiv 2603.25009; Nanda et al. 2023, arXiv 2301.05217",
        cost="6 min",
        function="attnsweep.reproduction.field.modular_addition:compare_weight_decay",
        sweep="modular_addition",
        full="attnsweep.reproduction.field.modular_addition:reproduce_full_weight_decay",
    ),
    Reproduction(
        name="power-data",
        title="how many times as many steps one percent less data takes, modular addition",
        source="Power et al. 2022, arXiv 2201.02177",
        cost="5 min",
        function="attnsweep.reproduction.field.modular_addition:compare_data",
        sweep="modular_addition_data",
        full="attnsweep.reproduction.field.modular_addition:reproduce_full_data",
    ),
    Reproduction(
        name="barak-parity",
        title="the power of n by which the steps of a sparse parity grow, by k",
        source="Barak et al. 2022, arXiv 2207.08799",
        cost="2 min",
        function="attnsweep.reproduction.field.sparse_parity:compare",
        sweep="sparse_parity",
        full="attnsweep.reproduction.field.sparse_parity:reproduce_full",
    ),
    Reproduction(
        name="fork-decided",
        title="when a training's outcome is decided, and by what: initialization or data",
        source=_FORKS,
        cost="20 min",
        function="attnsweep.reproduction.studies.fork_decided:reproduce",
    ),
    Reproduction(
        name="fork-border",
        title="the committor at the border of the zero of system P, as the escape law predicts it",
        source=_FORKS,
        cost="3 min",
        function="attnsweep.reproduction.studies.fork_border:reproduce",
    ),
    Reproduction(
        name="atlas",
        title="where the field's problems get stuck, by initialization, epsilon, attention scale and structure",
        source="attnsweep, docs/atlas.md",
        cost="15 min",
        function="attnsweep.reproduction.field.atlas:reproduce",
    ),
)
