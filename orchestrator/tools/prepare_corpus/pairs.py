"""`attnsweep prepare-corpus`: reads parallel text, writes a corpus, and reports how many rows were used."""

import json
import shlex
from dataclasses import asdict, dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from attnsweep.orchestrator.tools.prepare_corpus.output import check_out, rows_table, sha256_of, write
from attnsweep.orchestrator.tools.prepare_corpus.preparation import PreparationReport, PreparationSettings, prepare
from attnsweep.orchestrator.tools.prepare_corpus.raw_text import read_pairs
from attnsweep.workloads.translation.corpus import CORPUS_FILE


@dataclass(frozen=True, kw_only=True, slots=True)
class Preparation:
    """A prepared corpus of parallel text, written to a file, with its origin, settings and report.

    Attributes:
        out: The file of the corpus.
        digest: The digest of the corpus.
        origin: The file and columns that it was made from.
        settings: The settings of the preparation.
        report: The counts of used and dropped rows, and statistics.
    """

    out: Path
    digest: str
    origin: dict[str, str]
    settings: PreparationSettings
    report: PreparationReport

    @property
    def next_command(self) -> str:
        """The command to try next: a sweep that trains on the corpus."""
        return f"attnsweep run head_roles --set corpus={shlex.quote(str(self.out))}"

    def to_json(self) -> str:
        """Returns the report as one line of JSON, for scripts."""
        content = {
            "corpus": str(self.out),
            "digest": self.digest,
            "origin": self.origin,
            "settings": asdict(self.settings),
            **self.report.to_dict(),
            "next": self.next_command,
        }
        return json.dumps(content, allow_nan=False)

    def print(self, console: Console) -> None:
        """Prints the report and the next command."""
        report = self.report
        console.print(_rows_table(report))
        console.print(_sides_table(report, (self.origin["source"], self.origin["target"])))
        console.print(f"corpus   {self.out} (digest {self.digest})", soft_wrap=True, markup=False)
        console.print(f"next     {self.next_command}", soft_wrap=True, markup=False)


def prepare_file(
    file: Path, out: Path, source: str | None, target: str | None, settings: PreparationSettings
) -> Preparation:
    """Prepares a corpus from a file of parallel text: reads the pairs, builds the corpus, and writes it to `out`.

    Args:
        file: TSV, gzipped TSV or Parquet.
        out: The corpus to write.
        source, target: Names of columns or languages; by default the first two.
        settings: The settings of the preparation.

    Raises:
        UserError: If the file cannot be used, or the corpus cannot be written. Nothing has been written then.
    """
    check_out(out, CORPUS_FILE)
    raw = read_pairs(file, source, target)
    prepared = prepare(raw, settings)
    origin = {"file": file.name, "sha256": sha256_of(file), "source": raw.names[0], "target": raw.names[1]}
    corpus, report = prepared.corpus, prepared.report
    words = {"source": corpus.source.words, "target": corpus.target.words}
    further = {"origin": origin, "settings": asdict(settings), "report": report.to_dict()}
    columns = [prepared.source, prepared.target]
    write(CORPUS_FILE.table(columns, corpus.part, words, corpus.digest, further), out)
    return Preparation(out=out, digest=corpus.digest, origin=origin, settings=settings, report=report)


def _rows_table(report: PreparationReport) -> Table:
    grid = rows_table(report.rows, report.dropped, report.kept)
    for part, count in report.pairs.items():
        grid.add_row(f"  {part}", f"{count:,}")
    return grid


def _sides_table(report: PreparationReport, names: tuple[str, str]) -> Table:
    grid = Table(box=box.SIMPLE_HEAD)
    grid.add_column("")
    for name in names:
        grid.add_column(escape(name), justify="right")
    grid.add_row("vocabulary", *(f"{count:,}" for count in report.words))
    grid.add_row("mean length, words", *(f"{length:.1f}" for length in report.mean_length))
    for part, shares in report.unknown_share.items():
        grid.add_row(f"unknown words, {part}", *(f"{share:.1%}" for share in shares))
    return grid
