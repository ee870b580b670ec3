"""Planted faults in what sweeps of a million trainings need."""

from tests.planted.fault import Fault

_THINNED = (
    "tests/orchestrator/ledger/test_thinned_curves.py"
    "::test_trainings_that_are_told_so_keep_one_probe_in_three_and_replay_as_before",
)
_COMMITS = ("tests/orchestrator/ledger/test_ledger_commits.py",)
_TRACKING = ("tests/orchestrator/tracking/test_tracking.py::test_a_sweep_of_very_many_trials_is_one_run_with_a_table",)
_CURVES = ("tests/orchestrator/analysis/test_learning_curves.py",)
_SPLINES = ("tests/orchestrator/analysis/phase/test_splines.py",)
_DIAGRAM = ("tests/orchestrator/analysis/phase/test_phase_diagram.py",)
_BINS = ("tests/orchestrator/analysis/rates/test_bins.py",)
_EXPLORER = ("tests/orchestrator/report/test_explorer.py",)

FAULTS_OF_MANY = (
    Fault(
        "curves that are stored whole although fewer probes are wanted",
        "orchestrator/training/trainer.py",
        "curves=thinned(rows.curves, run.curves_every)",
        "curves=thinned(rows.curves, 1)",
        _THINNED,
    ),
    Fault(
        "a file that does not say which probes its curves hold",
        "orchestrator/ledger/writer.py",
        "replace(self._stamp, curves_every=curves_every)",
        "self._stamp",
        _THINNED,
    ),
    Fault(
        "full fragments that are merged again and again",
        "orchestrator/ledger/compaction.py",
        "(name for name in rows if rows[name] < FULL_ROWS)",
        "(name for name in rows)",
        _COMMITS,
    ),
    Fault(
        "a fragment whose curves do not count for its size",
        "orchestrator/ledger/writer.py",
        "sum(table.num_rows for table in tables.values() if table)",
        "trainings.num_rows",
        _COMMITS,
    ),
    Fault(
        "a run in MLflow for each of very many trials",
        "orchestrator/tracking/follow.py",
        "directory.spec.trials <= self.runs.most_trials",
        "True",
        _TRACKING,
    ),
    Fault(
        "trials that are said to be behind although they get no runs",
        "orchestrator/tracking/projection.py",
        "self._n_completed += self._has_runs",
        "self._n_completed += 1",
        _TRACKING,
    ),
    Fault(
        "quartiles of the last trainings of a group, not of those by lot",
        "orchestrator/analysis/learning_curves.py",
        "order by training_id, trial, replicate) <= {most}",
        "order by training_id desc, trial, replicate) <= {most}",
        _CURVES,
    ),
    Fault(
        "extremes that are looked for in the page's trials by their places among all",
        "orchestrator/report/explorer.py",
        "np.searchsorted(shown, order.trials).tolist()",
        "order.trials",
        _EXPLORER,
    ),
    Fault(
        "extremes that the page leaves out",
        "orchestrator/report/explorer.py",
        "np.union1d(lot, [at for order in extremes for at in order.trials])",
        "np.union1d(lot, [])",
        _EXPLORER,
    ),
    Fault(
        "lanes that keep the random numbers of those that left the pack",
        "workloads/engine/streams.py",
        "return type(self)(self._seeds[lanes])",
        "return type(self)(self._seeds[: len(lanes)])",
        ("tests/workloads/engine/test_pack.py",),
    ),
    Fault(
        "a smoothing that is judged by the trials it was fitted to",
        "orchestrator/analysis/phase/splines.py",
        "without = logit - spread * (self.k_P - self.weight_P * probability) / left",
        "without = logit",
        _SPLINES,
    ),
    Fault(
        "trials whose trainings end alike taken as independent trainings",
        "orchestrator/analysis/phase/splines.py",
        "np.maximum(corrected, independent)",
        "independent",
        _SPLINES,
    ),
    Fault(
        "a bend that costs nothing in one direction",
        "orchestrator/analysis/phase/splines.py",
        "np.kron(same, bends) + np.kron(bends, same)",
        "np.kron(same, bends)",
        _SPLINES,
    ),
    Fault(
        "shares that are off by chance alone",
        "orchestrator/analysis/phase/surface.py",
        "(abs(residual.sum()) - most * spread)",
        "abs(residual.sum())",
        _DIAGRAM,
    ),
    Fault(
        "a border that is drawn from a surface that does not fit",
        "orchestrator/analysis/phase/surface.py",
        "        if not self.fits:\n            return []\n",
        "",
        _DIAGRAM,
    ),
    Fault(
        "the band of a border where no border is",
        "orchestrator/analysis/phase/surface.py",
        "np.where(np.isin(part, crossed[crossed > 0]), depth, np.minimum(depth, -1e-9))",
        "depth",
        _DIAGRAM,
    ),
    Fault(
        "bins of a handful of trials",
        "orchestrator/analysis/rates/bins.py",
        "max(fewest, _FEWEST_TRIALS)",
        "fewest",
        _BINS,
    ),
    Fault(
        "bins beyond the range",
        "orchestrator/analysis/rates/bins.py",
        "bisect.bisect_left(values, dimension.high)",
        "len(values)",
        _BINS,
    ),
    Fault(
        "cells as fine as the bins of one parameter",
        "orchestrator/analysis/rates/bins.py",
        "len(values) ** (3 / 4) / math.sqrt(2)",
        "len(values) ** (2 / 3)",
        _BINS,
    ),
    Fault(
        "a shipped sweep that is another one since its description has changed",
        "orchestrator/running/entry.py",
        "spec.but(description=directory.spec.description).sha256()",
        "spec.sha256()",
        ("tests/fault/test_or_resume.py::test_a_sweep_in_other_words_is_the_same",),
    ),
    Fault(
        "a label by the levels of another training of the pack",
        "workloads/diagnostics/outcomes.py",
        "in_set_L = set_L == number",
        "in_set_L = set_L >= number",
        ("tests/workloads/diagnostics/test_outcomes.py",),
    ),
)
