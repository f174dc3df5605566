"""The machine and the versions that figures were made with, as text to stand beside them."""

import os
import platform
import re
import subprocess
from importlib.metadata import version
from pathlib import Path

import psutil

from connectors.cli.kafka.jars import java, kafka_version


def described() -> str:
    """Several lines: processor, memory, system, load, versions."""
    uptime = ", ".join(f"{load:.1f}" for load in os.getloadavg())
    libraries = ", ".join(f"{name} {version(name)}" for name in ("confluent-kafka", "rocksdict", "fastavro", "msgspec", "uvicorn"))
    return "\n".join(
        (
            f"machine    {_processor()}, {len(os.sched_getaffinity(0))} cores to run on, {psutil.virtual_memory().total / 2**30:.0f} GiB",
            f"system     {platform.system()} {platform.release()}; load {uptime}",
            f"versions   Kafka {kafka_version()} on {_java()}; Python {platform.python_version()}; {libraries}",
        )
    )


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*:\s*(.+)", path.read_text()) if path.exists() else None
    return found[1] if found else platform.processor() or platform.machine()


def _java() -> str:
    answer = subprocess.run([java(), "-version"], capture_output=True, text=True, check=True)
    return "Java " + (answer.stderr or answer.stdout).partition('"')[2].partition('"')[0]
