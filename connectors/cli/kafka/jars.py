"""Brings Kafka's jars with Maven, once per version and machine, and finds a Java that can run them.

What is in the cache is complete: it is filled beside it and renamed, under a file lock, so that two processes may ask
at once and a download that was cut leaves nothing that looks finished.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

from streams.errors import Misconfigured

_HERE: Final = Path(__file__).parent
_POM: Final = _HERE / "pom.xml"
LOG_CONFIGURATION: Final = _HERE / "log4j2.properties"
OLDEST_JAVA: Final = 17
_OTHERWISE: Final = "or name a running broker with --broker HOST:PORT, or use docker/compose.yaml"


@cache
def java() -> Path:
    """The Java to run: JAVA_HOME's, else the one on PATH. Raises `Misconfigured` naming what to install."""
    install = f"install Java {OLDEST_JAVA} or newer (Debian, Ubuntu: openjdk-17-jre-headless; macOS: brew install openjdk), {_OTHERWISE}"
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if found is None:
        raise Misconfigured(f"Java is not on PATH: {install}")
    try:
        answer = subprocess.run([found, "-version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise Misconfigured(f"{found} does not run ({error}): {install}") from error
    match = re.search(r'version "(\d+)', answer.stderr + answer.stdout)
    if match is None or int(match[1]) < OLDEST_JAVA:
        version = match[1] if match else "unknown"
        raise Misconfigured(f"{found} is of version {version}: {install}")
    return Path(found)


@cache
def kafka_version() -> str:
    match = re.search(r"<kafka\.version>([^<]+)<", _POM.read_text())
    assert match is not None, "pom.xml names no kafka.version"
    return match[1]


def cache_dir() -> Path:
    """Where jars are kept: $SESSION_STREAMS_CACHE, else the user's cache folder; below it one folder per version and pom."""
    named = os.environ.get("SESSION_STREAMS_CACHE")
    base = Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "session-streams"
    digest = hashlib.sha256(_POM.read_bytes()).hexdigest()[:8]
    return base / "kafka" / f"{kafka_version()}-{digest}"


def jars() -> Path:
    """The folder of the jars, downloaded when it is not there. Raises `Misconfigured` naming what is missing."""
    target = cache_dir() / "jars"
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with locked(target.parent / "lock"):
        if not target.is_dir():
            _download(target)
    return target


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds an exclusive lock on `path`, between processes; waits for it."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _download(target: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise Misconfigured(f"Maven is not on PATH: install it (Debian, Ubuntu: maven; macOS: brew install maven), {_OTHERWISE}")
    java()
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="download-") as work:
        # Maven writes beside the pom it reads, and the package may lie where nobody may write.
        pom = shutil.copy(_POM, work)
        filled = Path(work) / "jars"
        command = [
            maven,
            "--batch-mode",
            "--file",
            pom,
            "dependency:copy-dependencies",
            "-DincludeScope=runtime",
            f"-DoutputDirectory={filled}",
        ]
        run = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if run.returncode != 0 or not any(filled.glob("kafka_*.jar")):
            said = "\n".join(line for line in run.stdout.splitlines() if "ERROR" in line)[-2000:] or run.stderr[-2000:]
            raise Misconfigured(f"Maven could not bring Kafka {kafka_version()} (network, proxy or mirror settings):\n{said}")
        filled.rename(target)
