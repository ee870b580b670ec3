"""A sweep whose parameters vary together: its rows have a column for each of them, and so has each analysis."""

from pathlib import Path

from attnsweep import Float, Zip, open_sweep
from attnsweep.orchestrator.audit.audit import audit
from attnsweep.orchestrator.ledger.reader import Ledger
from tests.fault import sweeps


def test_rows_rates_and_audit_know_the_parameters_by_their_names(tmp_path: Path, no_mlflow: None) -> None:
    plane = {"n_categories, n_positions": Zip(((3, 4), (4, 6))), "init_sigma": Float(0.01, 1.0, points=2)}
    spec = sweeps.small_sweep(sampler="grid", trials=4, replicates=2)
    fixed = {name: value for name, value in spec.fixed().items() if name not in ("n_categories", "n_positions")}
    summary = sweeps.run(spec.but(space=fixed | plane), tmp_path / "s")
    rows = Ledger(tmp_path / "s").trainings()
    pairs = zip(rows["param_n_categories"].to_pylist(), rows["param_n_positions"].to_pylist(), strict=True)
    assert set(pairs) == {(3, 4), (4, 6)}
    assert [each.parameter for each in summary.results.by_parameter] == ["n_categories", "n_positions", "init_sigma"]
    assert summary.results.best is not None
    assert list(summary.results.best.parameters) == ["n_categories", "n_positions", "init_sigma"]
    rates = open_sweep(tmp_path / "s").stuck_rates(by=["n_positions", "init_sigma"])
    assert {each.n_trials for each in rates.cells} == {1}
    assert [str(each) for each in audit(tmp_path / "s").problems if "mlflow-sync" not in str(each)] == []
