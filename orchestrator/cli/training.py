"""Commands that look again at a training, a sweep or gradients, and ahead at a sweep before it runs.

Those that check exit with code 1 if they find a fault.

Light to import: each loads its libraries when it runs.
"""

from pathlib import Path
from typing import Annotated

import typer

from attnsweep.orchestrator.cli import resource_options as on
from attnsweep.orchestrator.cli.arguments import SweepDir, TrackingUri
from attnsweep.orchestrator.cli.author import AsJson
from attnsweep.orchestrator.cli.trusting import Trust, code_for, trust_code_of

EXIT_FAULT = 1


def replay(
    directory: SweepDir,
    training_id: Annotated[
        str,
        typer.Argument(metavar="TRAINING_ID", help="A training_id or its beginning, or TRIAL/REPLICATE, such as 12/3."),
    ],
    trace: Annotated[
        bool, typer.Option("--trace", help="Also measure at every step, and write ./trace-TRAINING_ID/curves.parquet.")
    ] = False,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Train one training again, alone, and compare it with the ledger; exit code 1 if they differ."""
    from attnsweep.orchestrator.inspection.replay import replay as replay_training
    from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
    from attnsweep.orchestrator.terminal import PlainConsole

    if trust:
        trust_code_of(directory)
    folder = Path(f"trace-{training_id.replace('/', '-')}") if trace else None
    found = replay_training(SweepDirectory.open(directory), training_id, folder)
    found.print(PlainConsole(stderr=as_json))
    if folder is not None:
        typer.echo(f"trace in {folder}", err=True)
    if as_json:
        typer.echo(found.to_json())
    if not found.deviation.agrees:
        raise typer.Exit(EXIT_FAULT)


def why(
    directory: SweepDir,
    training_id: Annotated[
        str,
        typer.Argument(metavar="TRAINING_ID", help="A training_id or its beginning, or TRIAL/REPLICATE, such as 12/3."),
    ],
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Say why a training stands where it ended: the words of its gradients, which cancel and which are missing."""
    from attnsweep.orchestrator.cli.screen.why import print_page
    from attnsweep.orchestrator.inspection.why import why as why_training
    from attnsweep.orchestrator.inspection.why_page import page_of
    from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
    from attnsweep.orchestrator.terminal import PlainConsole

    if trust:
        trust_code_of(directory)
    found = why_training(SweepDirectory.open(directory), training_id, str(directory))
    print_page(page_of(found), PlainConsole(stderr=as_json))
    if as_json:
        typer.echo(found.to_json())


def heads(
    directory: SweepDir,
    training_id: Annotated[
        str,
        typer.Argument(metavar="TRAINING_ID", help="A training_id or its beginning, or TRIAL/REPLICATE, such as 12/3."),
    ],
    sentence: Annotated[
        int | None, typer.Option(min=0, help="Number of the held-out sentence; default: one of median length.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="PNG or SVG to write; default: ./heads-TRAINING_ID.png.")
    ] = None,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Draw what each attention head of a training looks at where it ended, with its role and nearest structure."""
    from attnsweep.orchestrator.cli.screen.heads import print_heads
    from attnsweep.orchestrator.inspection.heads import heads_of
    from attnsweep.orchestrator.inspection.heads_figure import check_format, save_figure
    from attnsweep.orchestrator.storage.output_file import check_output, writing_file
    from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory

    file = out or Path(f"heads-{training_id.replace('/', '-')}.png")
    check_format(file)
    check_output(file)
    if trust:
        trust_code_of(directory)
    found = heads_of(SweepDirectory.open(directory), training_id, sentence)
    with writing_file(file) as path:
        save_figure(found.plot(), path, file.suffix)
    print_heads(found, stderr=as_json)
    _say(f"maps in {file}")
    if as_json:
        typer.echo(found.to_json())


def audit(
    directory: SweepDir,
    tracking_uri: TrackingUri = None,
    gradients: Annotated[
        bool,
        typer.Option("--gradients", help="Also train one training of each outcome again, and check its gradients."),
    ] = False,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Check that trials, trainings, files and MLflow agree; list all faults; exit code 1 if there are any."""
    from attnsweep.orchestrator.audit.audit import audit as audit_sweep
    from attnsweep.orchestrator.terminal import PlainConsole

    if trust:
        trust_code_of(directory)
    found = audit_sweep(directory, tracking_uri, _say if gradients else None)
    found.print(PlainConsole(stderr=as_json))
    if as_json:
        typer.echo(found.to_json())
    if found.problems:
        raise typer.Exit(EXIT_FAULT)


def check_gradients(
    workload: Annotated[str, typer.Argument(metavar="WORKLOAD", help="A workload's name, or FILE.py:CLASS.")],
    fixed: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PARAMETER=VALUE", help="Set a parameter of the workload; may be repeated."),
    ] = None,
    engine: Annotated[
        on.Engine, typer.Option(help="With blocks, check the compiled blocks too: up to a minute to compile.")
    ] = on.Engine.auto,
    as_json: AsJson = False,
) -> None:
    """Check the gradients of a workload in float64, one row per check; exit code 1 if one fails."""
    from attnsweep.orchestrator.inspection.bases import find_base
    from attnsweep.orchestrator.inspection.gradients import check_workload
    from attnsweep.orchestrator.terminal import PlainConsole
    from attnsweep.search_spaces.loading import assignment
    from attnsweep.workloads.registry import load_workload

    loaded = load_workload(workload)
    values = dict(assignment(text) for text in fixed or [])
    if (base := find_base(loaded, values)) is not None:
        values[loaded.parameters.base_field] = base.name
    report = check_workload(loaded, values, _say, compiles=engine == on.Engine.blocks)
    report.print(PlainConsole(stderr=as_json))
    if as_json:
        typer.echo(report.to_json())
    if report.failed:
        raise typer.Exit(EXIT_FAULT)


def forecast(
    spec: Annotated[
        str, typer.Argument(metavar="SPEC", help="The name of a shipped sweep, a Python file, or a sweep.json.")
    ],
    fixed: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Fix a parameter to one value; may be repeated."),
    ] = None,
    trials: Annotated[int | None, typer.Option(help="Number of configurations to train.")] = None,
    replicates: Annotated[int | None, typer.Option(help="Number of trainings of each configuration.")] = None,
    seeds: Annotated[int, typer.Option(min=8, max=4096, help="Trainings of a pilot, for each init_sigma.")] = 256,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Forecast a sweep: the steps in which trainings leave their start, the share that does in time, and the price."""
    from attnsweep.orchestrator.terminal import PlainConsole
    from attnsweep.orchestrator.tools.forecast.forecast import forecast as forecast_sweep
    from attnsweep.search_spaces.loading import assignment, load_sweep

    sweep = load_sweep(spec).fix(dict(assignment(text) for text in fixed or []))
    budget = {"trials": trials, "replicates": replicates}
    sweep = sweep.but(**{name: value for name, value in budget.items() if value is not None})
    code, stderr = code_for(spec, sweep, trusted=trust), PlainConsole(stderr=True)
    found = forecast_sweep(sweep, code, seeds, stderr, _say)
    found.print(stderr if as_json else PlainConsole(stderr=False))
    if as_json:
        typer.echo(found.to_json())


def _say(line: str) -> None:
    typer.echo(line, err=True)
