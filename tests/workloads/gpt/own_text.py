"""Small texts of tests, prepared as a user does."""

from pathlib import Path

from attnsweep.orchestrator.tools.prepare_corpus.rows import PreparationSettings
from attnsweep.orchestrator.tools.prepare_corpus.text import prepare_text
from attnsweep.orchestrator.tools.prepare_corpus.vocabulary import Unit

RHYME = [f"{number} little birds sat on a wall, {number} little birds in all" for number in range(100, 160)]


def prepared(folder: Path, lines: list[str] = RHYME, unit: Unit = "characters", **settings: float) -> Path:
    """The file of a prepared text."""
    (folder / "plain.txt").write_text("\n".join(lines))
    settings = {"held_out": 0.3} | settings
    out = folder / "text.parquet"
    prepare_text(folder / "plain.txt", out, None, PreparationSettings(unit=unit, **settings))  # type: ignore[arg-type]
    return out
