"""`rebuild` removes the stores of a stopped role, and never those of a running one."""

import subprocess
import sys
from pathlib import Path

import pytest

from connectors.cli.rebuild import wipe_stores
from streams.errors import Misconfigured
from streams.settings import Settings
from streams.store.store import Store, StoreIdentity


def store_at(data_dir: Path, partition: int) -> Store:
    path = data_dir / "stores" / "projector" / "0" / str(partition)
    return Store.open_or_rebuild(path, StoreIdentity("projector", 1, "cluster", "topic", partition))


def test_stores_of_a_stopped_role_are_removed_and_others_stay(tmp_path: Path) -> None:
    for partition in range(2):
        store_at(tmp_path, partition).close()
    other = tmp_path / "stores" / "authority" / "0" / "0"
    other.mkdir(parents=True)
    wiped = wipe_stores(Settings(data_dir=tmp_path), "projector")
    assert [store.name for store in wiped] == ["0", "1"]
    assert not any(store.exists() for store in wiped)
    assert other.exists()
    assert wipe_stores(Settings(data_dir=tmp_path), "projector") == []


RUNNING = """
import sys, time
from pathlib import Path
from streams.store.store import Store, StoreIdentity
store = Store.open_or_rebuild(Path(sys.argv[1]), StoreIdentity("projector", 1, "cluster", "topic", 0))
print("open", flush=True)
time.sleep(600)
"""


def test_stores_that_a_process_holds_open_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "stores" / "projector" / "0" / "0"
    path.parent.mkdir(parents=True)
    holder = subprocess.Popen([sys.executable, "-c", RUNNING, str(path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    try:
        with holder.stdout:
            assert holder.stdout.readline() == "open\n"
            with pytest.raises(Misconfigured, match="stop it"):
                wipe_stores(Settings(data_dir=tmp_path), "projector")
            assert path.exists()
    finally:
        holder.kill()
        holder.wait()
