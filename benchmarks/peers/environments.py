"""Virtual environments and the Maven build of the peers, below build/peers, made when they are first needed.

What is there is complete: the mark that names what it was made from is written last, and something else is made anew.
"""

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from connectors.cli.kafka.jars import java

HERE: Final = Path(__file__).parent
_BUILD: Final = HERE.parents[1] / "build" / "peers"
_MARK: Final = "made-from"


def python(name: str) -> Path:
    """The interpreter of the environment that <name>-requirements.txt describes. Raises RuntimeError with pip's words."""
    requirements, folder = HERE / f"{name}-requirements.txt", _BUILD / name
    made_from = _digest([requirements]) + sys.version
    found = folder / "bin" / "python"
    if _is_made(folder, made_from):
        return found
    shutil.rmtree(folder, ignore_errors=True)
    _run([sys.executable, "-m", "venv", str(folder)])
    _run([str(found), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement", str(requirements)])
    (folder / _MARK).write_text(made_from)
    return found


def classpath() -> str:
    """Of the fold in Kafka Streams. Raises RuntimeError with Maven's words, `Misconfigured` where Java is missing."""
    project, folder = HERE / "kafka-streams", _BUILD / "kafka-streams"
    made_from = _digest([project / "pom.xml", *sorted((project / "src").rglob("*.java"))])
    if not _is_made(folder, made_from):
        java()
        maven = shutil.which("mvn")
        if maven is None:
            raise RuntimeError("Maven is not on PATH: it builds the fold in Kafka Streams")
        shutil.rmtree(folder, ignore_errors=True)
        _run([maven, "--batch-mode", "--quiet", "--file", str(project / "pom.xml"), f"-Doutput={folder}", "package"])
        (folder / _MARK).write_text(made_from)
    return f"{folder / 'classes'}:{folder / 'jars'}/*"


def _is_made(folder: Path, made_from: str) -> bool:
    mark = folder / _MARK
    return mark.exists() and mark.read_text() == made_from


def _digest(files: Sequence[Path]) -> str:
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def _run(command: list[str]) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with status {done.returncode}:\n{(done.stdout + done.stderr)[-3000:]}")
