"""Loads a recorded training as a module, at its end or at a step, and writes it for other libraries."""

import importlib.metadata
import importlib.util
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from attnsweep.orchestrator.inspection.kept_weights import End, ends_of
from attnsweep.orchestrator.inspection.recorded import ended_training, recorded_training
from attnsweep.orchestrator.inspection.retraining import retrain
from attnsweep.orchestrator.ledger.reader import Ledger
from attnsweep.orchestrator.storage.output_file import writing_folder
from attnsweep.orchestrator.storage.stored_code import load_workload_of
from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory
from attnsweep.workloads.engine.construction import built_alone
from attnsweep.workloads.engine.contract import Training, Workload
from attnsweep.workloads.engine.intervening import hold_as
from attnsweep.workloads.engine.optimizers import State
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.gpt.hugging_face import as_gpt2
from attnsweep.workloads.gpt.model import GPT
from attnsweep.workloads.interventions import INTERVENTION, Clamp, Scale, interventions_of

_log = logging.getLogger(__name__)

_WITH_WEIGHTS = "select trial, replicate, outcome from trainings where outcome not in ('failed', 'diverged')"


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainedModule:
    """The `module` is in eval mode, on the CPU, in the types that it was trained in, with its weights at `step`."""

    workload: Workload[Any]
    training: Training[Any]
    row: Mapping[str, Any]
    step: int
    module: nn.Module


def trained_module(directory: SweepDirectory, name: str, step: int | None = None) -> TrainedModule:
    """As `OpenedSweep.module`."""
    workload = load_workload_of(directory)
    if step is None:
        row, _, training = ended_training(directory, workload, name, _WITH_WEIGHTS)
        (end,) = ends_of(directory, [row["training_id"]])
    else:
        row, _, task = recorded_training(Ledger(directory.place), workload, name)
        training, end = task.training, _at(directory, row, step)
    if end.difference:
        _log.warning("module of %s: %s", name, end.difference)
    module = built_alone(workload, training)
    load(module, end.state)
    step = row["n_steps"] if step is None else step
    return TrainedModule(workload=workload, training=training, row=row, step=step, module=module.eval())


def load(module: nn.Module, state: State) -> None:
    """The module's tensors get the dtypes of the loaded ones; tied parameters stay tied."""
    hold_as(module, state)
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    for name, value in state.items():
        # A buffer of a clamp exists only for the steps at which it acts.
        if name in tensors:
            tensors[name].data = value


def _at(directory: SweepDirectory, row: Mapping[str, Any], step: int) -> End:
    n_steps = row["n_steps"] or 0
    if not 0 <= step <= n_steps:
        fix = "leave it out for the training's end"
        raise UserError("step", given=step, expected=f"a step that the training took, from 0 to {n_steps}", fix=fix)
    (again,) = retrain(directory, [row["training_id"]], at_step=step)
    return End(again.ended, again.difference)


_TORCH_FILE, _WEIGHTS_FILE = "model.pt", "model.safetensors"


def export(directory: SweepDirectory, name: str, to: str, out: Path, step: int | None = None) -> str:
    """Writes a trained module to a new or empty folder; returns a line of Python that loads it.

    Args:
        to: `pt`, `safetensors`: the weights; `hf`: a folder for `from_pretrained`.
        step: The number of steps after which to take the weights; by default all.
    """
    write, library, extra = _TARGETS[to]
    if library is not None and importlib.util.find_spec(library) is None:
        fix = f"install it with: pip install 'attnsweep[{extra}]', or export the weights with --to pt"
        raise UserError(f"--to {to}", given=None, expected=f"the library {library}, which is not installed", fix=fix)
    with writing_folder(out) as folder:
        trained = trained_module(directory, name, step)
        _check_heads(trained, name)
        return write(trained, folder).format(out)


def _check_heads(trained: TrainedModule, name: str) -> None:
    interventions = interventions_of(trained.row.get(f"param_{INTERVENTION}"))
    held = [str(each) for each in interventions if isinstance(each, Clamp | Scale) and trained.step in each.steps]
    if held:
        given = f"{name}, in which the intervention '{'; '.join(held)}' acts at step {trained.step}"
        fix = "choose another step with --step, or use open_sweep(...).module(...), which applies it"
        raise UserError("TRAINING_ID", given=given, expected="a step at which no intervention acts on heads", fix=fix)


def _about(trained: TrainedModule) -> dict[str, Any]:
    return {
        **{name: trained.row[name] for name in ("training_id", "sweep", "trial", "replicate")},
        "workload": trained.workload.name,
        "parameters": trained.training.parameters.values(),
        "seed": trained.training.seed,
        "step": trained.step,
        "outcome": trained.row["outcome"],
        "attnsweep": importlib.metadata.version("attnsweep"),
    }


def _write_pt(trained: TrainedModule, folder: Path) -> str:
    torch.save(trained.module.state_dict(), folder / _TORCH_FILE)
    (folder / "about.json").write_text(json.dumps(_about(trained), indent=1))
    return f'module.load_state_dict(torch.load("{{}}/{_TORCH_FILE}"))'


def _write_safetensors(trained: TrainedModule, folder: Path) -> str:
    from safetensors.torch import save_file

    # safetensors refuses tensors that share memory, so tied weights are copied.
    state = {name: value.detach().clone().contiguous() for name, value in trained.module.state_dict().items()}
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in _about(trained).items()}
    save_file(state, folder / _WEIGHTS_FILE, texts)
    return f'module.load_state_dict(safetensors.torch.load_file("{{}}/{_WEIGHTS_FILE}"))'


def _write_hugging_face(trained: TrainedModule, folder: Path) -> str:
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    if not isinstance(trained.module, GPT):
        expected = "a training of gpt: only that becomes a GPT-2"
        fix = "export the weights alone with --to pt"
        raise UserError("--to", given=f"a training of the workload {trained.workload.name}", expected=expected, fix=fix)
    model: Any = as_gpt2(trained.training.parameters, trained.module)
    model.config.attnsweep = _about(trained)
    model.save_pretrained(folder)
    return 'transformers.GPT2LMHeadModel.from_pretrained("{}")'


_TARGETS: dict[str, tuple[Callable[[TrainedModule, Path], str], str | None, str]] = {
    "pt": (_write_pt, None, ""),
    "safetensors": (_write_safetensors, "safetensors", "safetensors"),
    "hf": (_write_hugging_face, "transformers", "hf"),
}
"""The writer, the library that it needs, and the extra of attnsweep that installs this."""
