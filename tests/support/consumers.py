"""The consumers of docs/consuming.md as processes: the very files that the page shows, the Java one compiled by Maven."""

import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from connectors.cli.kafka import jars
from connectors.cli.offspring import start_child
from streams.log.topics import Topics
from streams.settings import Settings

REPOSITORY = Path(__file__).parents[2]
EXAMPLES = REPOSITORY / "docs" / "examples"
SCHEMAS = REPOSITORY / "schemas"
_FIELDS = ("offset", "session_id", "sequence", "event_id", "type", "attributes", "content_digest")


@dataclass(frozen=True)
class Row:
    """What a consumer kept of an event."""

    partition: int
    offset: int
    session_id: str
    sequence: int
    event_id: str
    type: str
    attributes: dict[str, Any] | None
    content_digest: str | None


class ExampleConsumer(ABC):
    """One consumer, and the folder that survives it; instances of one kind share theirs."""

    name: str

    def __init__(self, settings: Settings, folder: Path, *, instance: str = "0", schemas: str = str(SCHEMAS)) -> None:
        self.settings = settings
        self.folder = folder / self.name
        self.folder.mkdir(exist_ok=True)
        self.instance = instance
        self.schemas = schemas
        self._output = folder / f"{self.name}-{instance}.out"
        self.process = self._start()

    @abstractmethod
    def command(self) -> list[str]: ...

    @abstractmethod
    def rows(self) -> list[Row]:
        """In the order in which they were kept; of the Java one partition by partition."""

    @property
    def topic(self) -> str:
        return Topics(self.settings.topic_prefix).events

    @property
    def group(self) -> str:
        return f"{self.settings.topic_prefix}example-{self.name}"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def restart(self) -> None:
        assert self.process.poll() is not None
        self.process = self._start()

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(30)

    def said(self) -> str:
        return self._output.read_text(errors="replace")

    def _start(self) -> "subprocess.Popen[bytes]":
        return start_child(self.command(), output=self._output, environment=dict(os.environ))


class PythonConsumer(ExampleConsumer):
    name = "python"

    @property
    def database(self) -> Path:
        return self.folder / "events.sqlite"

    def command(self) -> list[str]:
        return [
            sys.executable, str(EXAMPLES / "python" / "consume.py"), "--bootstrap", self.settings.bootstrap, "--topic", self.topic,
            "--schemas", self.schemas, "--database", str(self.database), "--group", self.group, "--instance", self.instance,
        ]  # fmt: skip

    def rows(self) -> list[Row]:
        if not self.database.exists():
            return []
        connection = sqlite3.connect(self.database, timeout=30)
        try:
            found = connection.execute(
                'SELECT partition, "offset", session_id, sequence, event_id, type, attributes, content_digest FROM events ORDER BY rowid'
            ).fetchall()
        except sqlite3.OperationalError:
            return []  # it has not made its tables yet
        finally:
            connection.close()
        return [Row(*row[:6], None if row[6] is None else json.loads(row[6]), row[7]) for row in found]


class JavaConsumer(ExampleConsumer):
    name = "java"

    def command(self) -> list[str]:
        return [
            str(jars.java()), "-Xmx128m", "-cp", java_class_path(), "Consume",
            self.settings.bootstrap, self.topic, self.schemas, str(self.folder), self.group, self.instance,
        ]  # fmt: skip

    def rows(self) -> list[Row]:
        found = []
        for path in sorted(self.folder.glob("*.jsonl")):
            for line in path.read_bytes().splitlines(keepends=True):
                if line.endswith(b"\n"):  # the rest is still being written
                    entry = json.loads(line)
                    fields = [
                        entry[name] for name in ("offset", "session_id", "sequence", "event_id", "type", "attributes", "content_digest")
                    ]
                    found.append(Row(int(path.stem), *fields))
        return found


def java_class_path() -> str:
    """Compiled once per version of the example and machine. Raises AssertionError with what Maven said."""
    source = EXAMPLES / "java"
    files = sorted(path for path in source.rglob("*") if path.suffix in (".java", ".xml"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]
    target = jars.cache_dir().parent.parent / "examples" / digest
    target.parent.mkdir(parents=True, exist_ok=True)
    with jars.locked(target.parent / "lock"):
        if not target.is_dir():
            with tempfile.TemporaryDirectory(dir=target.parent, prefix="build-") as work:
                project = Path(work) / "project"
                shutil.copytree(source, project, ignore=shutil.ignore_patterns("target"))
                _maven(project)
                (project / "target").rename(target)
    return f"{target / 'classes'}:{target / 'dependency' / '*'}"


def _maven(project: Path) -> None:
    """Offline where the machine has everything, which takes a moment; over the network otherwise."""
    goals = ["compile", "dependency:copy-dependencies", "-DincludeScope=runtime"]
    for mode in (["--offline"], []):
        run = subprocess.run(
            ["mvn", "--quiet", "--batch-mode", *mode, *goals],
            cwd=project,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if run.returncode == 0:
            return
    raise AssertionError(f"the Java example does not build:\n{run.stdout[-4000:]}{run.stderr[-2000:]}")
