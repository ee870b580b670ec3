"""`attnsweep gc`: what sweep directories no longer need, by kind."""

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
    """Prints on stdout what can go, or what was removed.

    Raises:
        UserError: As `collect`; of several sweeps, those before it are done.
    """
    parts = [part for each in directories for part in parts_of(place_of(each))]
    found = {str(each): collect(each, delete=delete, thin=thin) for each in parts}
    if as_json:
        content = {place: [asdict(each) for each in files] for place, files in found.items()}
        print(json.dumps({"deleted": delete, "sweeps": content}))  # noqa: T201  # The command's answer.
        return
    table = Table(
        Column("sweep", overflow="fold"),
        "what",
        Column("files", justify="right"),
        Column("size", justify="right"),
        box=None,
        header_style="bold",
    )
    for place, files in found.items():
        for kind in dict.fromkeys(each.kind for each in files):
            sizes = [each.n_bytes for each in files if each.kind == kind]
            table.add_row(as_argument(place), kind, f"{len(sizes):,}", decimal(sum(sizes)))
    console = PlainConsole(soft_wrap=True)
    every = [each for files in found.values() for each in files]
    if not every:
        console.print("nothing can go")
        return
    console.print(table)
    total = f"{decimal(sum(each.n_bytes for each in every))} in {len(every):,} files"
    again = " ".join(map(as_argument, directories)) + (f" --thin-curves {thin}" if thin else "")
    console.print(f"freed {total}" if delete else f"{total} can go; free them with: attnsweep gc {again} --delete")
