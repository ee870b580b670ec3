"""Converts the results of a trained pack to rows of the ledger."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from attnsweep.orchestrator.ledger.schema import schemas_of
from attnsweep.orchestrator.training.messages import Rows, Standing
from attnsweep.orchestrator.training.tasks import Task, training_id
from attnsweep.workloads.diagnostics.escape import predicted_escapes
from attnsweep.workloads.diagnostics.promotion import certify_stuck
from attnsweep.workloads.engine.contract import Certificate, Workload
from attnsweep.workloads.engine.judging import first_held, is_stuck, judged, least_losses
from attnsweep.workloads.engine.outcomes import onset_probe
from attnsweep.workloads.engine.pack import Pack
from attnsweep.workloads.engine.result import HeadProbe, PackResult
from attnsweep.workloads.engine.verdicts import Verdicts
from attnsweep.workloads.vocabulary import NEGATIVE_LOSS, PRUNED

_MAX_STEPS = 2**31 - 1


@dataclass(frozen=True)
class PackContext:
    sweep: str
    pack: str
    device: str | None = None
    host: str | None = None
    environment: str | None = None
    accelerator: str | None = None


def ended_rows(
    workload: Workload[Any], tasks: Sequence[Task], pack: Pack[Any], result: PackResult, context: PackContext
) -> Rows:
    trainings = [task.training for task in tasks]
    verdicts = judged(workload, trainings[0].parameters, result.evidence)
    shares = np.array([task.certified_share for task in tasks])
    certificates = certify_stuck(workload, pack, shares, result, verdicts)
    _, state = pack.final_state(np.arange(len(tasks)))
    escapes = predicted_escapes(workload, trainings, state)
    return Rows(
        trainings=trained_rows(workload, tasks, result, verdicts, certificates, context, escapes),
        curves=curve_rows(workload, tasks, result, _final_metrics(workload, pack, result) | _measured_by(certificates)),
        heads=head_rows(workload, tasks, result),
    )


def standings(workload: Workload[Any], tasks: Sequence[Task], pack: Pack[Any]) -> list[Standing]:
    """As each training would end now."""
    result = pack.result()
    verdicts = judged(workload, tasks[0].training.parameters, result.evidence)
    outcome = np.where(result.diverged_step >= 0, "diverged", result.at_last_probe(verdicts.outcome))
    losses = _unless(result.diverged_step >= 0, result.last("eval_loss"))
    return [
        (label, stuck, loss if np.isfinite(loss) else None)
        for label, stuck, loss in zip(
            outcome.tolist(), is_stuck(workload, outcome).tolist(), losses.tolist(), strict=True
        )
    ]


def _final_metrics(workload: Workload[Any], pack: Pack[Any], result: PackResult) -> dict[str, NDArray[np.float64]]:
    ended = np.flatnonzero(~result.is_cut_short)
    metrics: dict[str, NDArray[np.float64]] = {}
    for name, values in workload.final_metrics(*pack.final_state(ended)).items() if ended.size else ():
        metrics[name] = np.full(len(result.is_cut_short), np.nan)
        metrics[name][ended] = values
    return metrics


def _measured_by(certificates: Sequence[Certificate | None]) -> dict[str, NDArray[np.float64]]:
    measured = [certificate.measured if certificate else {} for certificate in certificates]
    names = sorted({name for numbers in measured for name in numbers})
    return {name: np.array([numbers.get(name, np.nan) for numbers in measured]) for name in names}


def joined(packs: Sequence[Rows]) -> Rows:
    heads = [rows.heads for rows in packs if rows.heads is not None]
    return Rows(
        trainings=pa.concat_tables([rows.trainings for rows in packs]),
        curves=pa.concat_tables([rows.curves for rows in packs]),
        heads=pa.concat_tables(heads) if heads else None,
    )


def trained_rows(
    workload: Workload[Any],
    tasks: Sequence[Task],
    result: PackResult,
    verdicts: Verdicts,
    certificates: Sequence[Certificate | None],
    context: PackContext,
    escapes: NDArray[np.float64] | None = None,
) -> pa.Table:
    """Each argument but `workload` and `context` has an entry per training; steps become null where -1 or NaN."""
    overflowed, is_pruned = result.diverged_step >= 0, result.pruned_step >= 0
    final, detail = result.at_last_probe(verdicts.outcome), result.at_last_probe(verdicts.detail)
    steps, last_probe = result.evidence.steps, result.last_probe
    onset_at = onset_probe(verdicts.outcome, last_probe)
    onset, before_onset = steps[onset_at], onset_at - 1
    outcome = np.where(is_pruned, PRUNED, np.where(overflowed, "diverged", final))
    # A loss that overflows after a probe at which it was still judged otherwise: this very step is the onset.
    overflows_later = overflowed & (final != "diverged")
    onset = np.where(overflows_later, result.diverged_step, onset)
    before_overflow = np.where(result.diverged_step > steps[last_probe], last_probe, -1)
    before_onset = np.where(overflows_later, before_overflow, before_onset)
    levels = result.evidence.levels
    is_negative = result.evidence.metrics["eval_loss"] < least_losses(workload, levels)[:, None]
    detail = np.where(result.is_cut_short, np.where(overflowed & is_negative.any(1), NEGATIVE_LOSS, ""), detail)
    held = first_held(workload, tasks[0].training.parameters, result.evidence, last_probe)
    return _rows(
        workload,
        tasks,
        context,
        certificate=[certificate and certificate.test for certificate in certificates],
        certified=[certificate and certificate.agrees for certificate in certificates],
        outcome=outcome,
        outcome_detail=[str(word) or None for word in detail],
        stuck=is_stuck(workload, outcome),
        final_loss=_unless(overflowed, result.last("loss")),
        eval_loss=_unless(overflowed, result.last("eval_loss")),
        grad_norm=_unless(overflowed, result.last("grad_norm")),
        loss_level=levels["solved"],
        **{f"level_{name}": levels[name] for name in workload.level_names if name in levels},
        n_steps=result.n_steps,
        **{f"event_{name}": _steps_at(steps, first) for name, first in held.items()},
        **{
            f"before_event_{name}": _steps_at(steps, np.where(first < 0, last_probe, first - 1))
            for name, first in held.items()
        },
        onset_step=[None if cut else int(step) for cut, step in zip(is_pruned, onset, strict=True)],
        before_onset_step=_steps_at(steps, np.where(is_pruned, -1, before_onset)),
        predicted_escape_step=[None] * len(tasks) if escapes is None else [_whole(step) for step in escapes],
        diverged_step=[int(step) if step >= 0 else None for step in result.diverged_step],
        pruned_step=[int(step) if step >= 0 else None for step in result.pruned_step],
        train_seconds=result.train_seconds,
        probe_seconds=result.probe_seconds,
    )


def failed_rows(workload: Workload[Any], tasks: Sequence[Task], error: str, context: PackContext) -> Rows:
    """Their `n_steps` and `train_seconds` are 0, and what would have been measured is null."""
    trainings = _rows(
        workload,
        tasks,
        context,
        outcome=["failed"] * len(tasks),
        stuck=[False] * len(tasks),
        n_steps=[0] * len(tasks),
        train_seconds=[0.0] * len(tasks),
        error=[error] * len(tasks),
    )
    return Rows(trainings, schemas_of(workload)["curves"].empty_table(), None)


def curve_rows(
    workload: Workload[Any],
    tasks: Sequence[Task],
    result: PackResult,
    scores: Mapping[str, NDArray[np.float64]] | None = None,
) -> pa.Table:
    """A row for each training, probe and metric; none for values that are not finite.

    `scores`: by name one value per training, measured at its end; NaN if not measured.
    """
    schema = schemas_of(workload)["curves"]
    ids = pa.array([_training_id(workload, task) for task in tasks])
    trials = np.array([task.trial for task in tasks], dtype=np.int32)
    replicates = np.array([task.replicate for task in tasks], dtype=np.int32)
    is_last = np.arange(len(result.evidence.steps)) == result.last_probe[:, None]
    at_last = {name: np.where(is_last, score[:, None], np.nan) for name, score in (scores or {}).items()}
    curves = result.evidence.metrics | at_last
    metrics = list(curves)
    values = np.stack([curves[name] for name in metrics], axis=1)
    lane, metric, probe = np.nonzero(np.isfinite(values))
    columns = {
        "training_id": pa.DictionaryArray.from_arrays(lane.astype(np.int32), ids),
        "trial": trials[lane],
        "replicate": replicates[lane],
        "step": result.evidence.steps[probe].astype(np.int32),
        "metric": pa.DictionaryArray.from_arrays(metric.astype(np.int32), pa.array(metrics)),
        "value": values[lane, metric, probe],
    }
    return pa.table(columns).select(schema.names).cast(schema)


def head_rows(workload: Workload[Any], tasks: Sequence[Task], result: PackResult) -> pa.Table | None:
    """A row for each training, probe, layer and head; `None` without heads."""
    if not result.heads:
        return None
    tables = [_heads_at(workload, tasks, probe) for probe in result.heads]
    return pa.concat_tables(tables).cast(schemas_of(workload)["heads"])


def _heads_at(workload: Workload[Any], tasks: Sequence[Task], probe: HeadProbe) -> pa.Table:
    shape = probe.heads.role.shape  # (lanes, layers, heads)
    lane, layer, head = (index.ravel() for index in np.indices(shape))
    tasks_of_rows = [tasks[position] for position in probe.lanes[lane]]
    scores = {
        f"score_{name}": pa.array(np.broadcast_to(probe.heads.scores[name], shape).ravel(), from_pandas=True)
        for name in workload.head_score_names
    }
    return pa.table(
        {
            "training_id": [_training_id(workload, task) for task in tasks_of_rows],
            "trial": pa.array([task.trial for task in tasks_of_rows], pa.int32()),
            "replicate": pa.array([task.replicate for task in tasks_of_rows], pa.int32()),
            "step": pa.array([probe.step] * lane.size, pa.int32()),
            "layer": pa.array(layer, pa.int32()),
            "head": pa.array(head, pa.int32()),
            "role": probe.heads.role.ravel().tolist(),
            **scores,
        }
    )


def _rows(workload: Workload[Any], tasks: Sequence[Task], context: PackContext, **measured: Any) -> pa.Table:
    schema = schemas_of(workload)["trainings"]
    n_rows = len(tasks)
    parameters = [task.training.parameters for task in tasks]
    effective = [values.effective() for values in parameters]
    variant_field = workload.parameters.variant_field
    columns: dict[str, Any] = {
        "sweep": [context.sweep] * n_rows,
        "workload": [workload.name] * n_rows,
        "variant": [getattr(values, variant_field) if variant_field else None for values in parameters],
        "trial": [task.trial for task in tasks],
        "replicate": [task.replicate for task in tasks],
        "training_id": [_training_id(workload, task) for task in tasks],
        "seed": [task.training.seed for task in tasks],
        **{f"param_{name}": [values[name] for values in effective] for name in workload.parameters.declared()},
        "pack": [context.pack] * n_rows,
        "lane": list(range(n_rows)),
        "pack_size": [n_rows] * n_rows,
        "device": [context.device] * n_rows,
        "accelerator": [context.accelerator] * n_rows,
        "host": [context.host] * n_rows,
        "environment": [context.environment] * n_rows,
        "finished_at": [datetime.now(UTC)] * n_rows,
        **measured,
    }
    arrays = [
        _array(columns[field.name], field.type) if field.name in columns else pa.nulls(n_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    # Arrow makes dictionary columns only from lists; `from_pandas=True` turns NaN into null.
    plain = values.tolist() if isinstance(values, np.ndarray) and pa.types.is_dictionary(kind) else values
    return pa.array(plain, type=kind, from_pandas=True)


def _training_id(workload: Workload[Any], task: Task) -> str:
    return training_id(workload.name, task.training.parameters, task.training.seed)


def _unless(overflowed: NDArray[np.bool_], values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(overflowed, np.nan, values)


def _steps_at(steps: NDArray[np.int64], probes: NDArray[np.int64]) -> list[int | None]:
    """None for the probe -1."""
    return [int(steps[probe]) if probe >= 0 else None for probe in probes]


def _whole(step: float) -> int | None:
    """At most `_MAX_STEPS`; null if not finite."""
    return int(min(step, _MAX_STEPS)) if np.isfinite(step) else None
