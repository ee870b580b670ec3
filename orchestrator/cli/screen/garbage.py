"""Prints the result of `attnsweep gc`: files that sweep directories no longer need, by kind."""

import json
from collections.abc import Sequence
from dataclasses import asdict

from rich.filesize import decimal
from rich.table import Column, Table

from attnsweep.orchestrator.ledger.garbage import collect
from attnsweep.orchestrator.storage.place_names import as_argument, place_of
from attnsweep.orchestrator.storage.shards import parts_of
from attnsweep.orchestrator.terminal import PlainConsole


def collect_garbage(directories: Sequence[str], *, delete: bool, thin: int | None, as_json: bool) -> None:
    """Prints the files that can be removed, or that were removed, on stdout.

    Raises:
        UserError: As `collect`; sweeps named before the faulty one are already collected.
    """
    parts = [part for directory in directories for part in parts_of(place_of(directory))]
    files_of = {str(part): collect(part, delete=delete, thin=thin) for part in parts}
    if as_json:
        content = {place: [asdict(file) for file in files] for place, files in files_of.items()}
        print(json.dumps({"deleted": delete, "sweeps": content}))  # noqa: T201  # JSON is the command's result.
        return
    table = Table(
        Column("sweep", overflow="fold"),
        "what",
        Column("files", justify="right"),
        Column("size", justify="right"),
        box=None,
        header_style="bold",
    )
    for place, files in files_of.items():
        for kind in dict.fromkeys(file.kind for file in files):
            sizes = [file.n_bytes for file in files if file.kind == kind]
            table.add_row(as_argument(place), kind, f"{len(sizes):,}", decimal(sum(sizes)))
    console = PlainConsole(soft_wrap=True)
    all_files = [file for files in files_of.values() for file in files]
    if not all_files:
        console.print("nothing can go")
        return
    console.print(table)
    total = f"{decimal(sum(file.n_bytes for file in all_files))} in {len(all_files):,} files"
    again = " ".join(map(as_argument, directories)) + (f" --thin-curves {thin}" if thin else "")
    console.print(f"freed {total}" if delete else f"{total} can go; free them with: attnsweep gc {again} --delete")
