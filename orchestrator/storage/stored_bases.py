"""The trained weights that a sweep starts from: stored in its directory, under names that contain their hash."""

from attnsweep.orchestrator.storage.sweep_directory import SweepDirectory, base_file
from attnsweep.workloads.base_names import is_text_of
from attnsweep.workloads.errors import UserError
from attnsweep.workloads.files import take_over


def offer_bases(directory: SweepDirectory) -> None:
    """Puts the bases (weights that trainings start from) of a sweep where its workload looks for them in this process.

    Raises:
        UserError: If a base is missing, or differs from the one that the sweep recorded.
    """
    directory = directory.with_files()
    for name in directory.bases:
        take_over({name: _stored(directory, name).encode()})


def _stored(directory: SweepDirectory, name: str) -> str:
    file = f"{directory.place}/{base_file(name)}"
    try:
        text = directory.place.read_text(base_file(name))
    except (OSError, ValueError) as error:
        given = getattr(error, "strerror", None) or str(error)
    else:
        if is_text_of(name, text):
            return text
        given = "other bytes than were written"
    raise UserError(
        file,
        given=given,
        expected=f"the unchanged weights of the base {directory.bases[name]}, which the sweep stored",
        fix="restore the weights file from a copy",
    )
