"""Files that are written for real, and snapshots of them."""

import io
import tarfile
from pathlib import Path

import pytest

from connectors.runner.tools import FileWrite, Replacement
from connectors.runner.workspace import MARKER, Kept, SnapshotUnusable, Workspace
from streams.custody.compressed_files import compressing, decompressing
from streams.errors import Misconfigured

KEPT = Kept("run_" + "0" * 32, 7)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "workspace")


def snapshot(workspace: Workspace, kept: Kept = KEPT) -> bytes:
    file = io.BytesIO()
    workspace.snapshot(file, kept)
    return file.getvalue()


def packed(*members: tarfile.TarInfo, headers: dict[str, str] | None = None) -> bytes:
    file = io.BytesIO()
    given = (
        {"SESSIONSTREAMS.run": KEPT.run_id, "SESSIONSTREAMS.steps": "7", "SESSIONSTREAMS.members": str(len(members) - 1)}
        if headers is None
        else headers
    )
    with (
        compressing(file) as compressed,
        tarfile.open(fileobj=compressed, mode="w|", format=tarfile.PAX_FORMAT, pax_headers=given) as archive,
    ):
        for member in members:
            archive.addfile(member, io.BytesIO(b"x" * member.size))
    return file.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.size, made.linkname = kind, size, link
    return made


def test_what_a_runner_left_behind_is_nobodys_state_and_is_removed(tmp_path: Path) -> None:
    before = Workspace(tmp_path / "old")
    before.write(FileWrite("deep/file", content="left behind"))
    before.write(FileWrite("file", content="left behind"))
    (tmp_path / "old" / "link").symlink_to(tmp_path)
    assert Workspace(tmp_path / "old").files() == {}
    assert [path.name for path in (tmp_path / "old").iterdir()] == [MARKER]


def test_what_no_runner_put_there_is_kept_and_the_folder_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of it")
    (tmp_path / "file").write_text("no folder")
    for path in (tmp_path / "mine", tmp_path / "file"):
        with pytest.raises(Misconfigured):
            Workspace(path)
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years of it"
    (tmp_path / "empty").mkdir()
    assert Workspace(tmp_path / "empty").files() == {}


def test_the_marker_of_a_workspace_travels_in_no_snapshot(workspace: Workspace) -> None:
    with tarfile.open(fileobj=io.BytesIO(b"".join(decompressing(io.BytesIO(snapshot(workspace)), 1 << 20)))) as archive:
        assert archive.getnames() == ["."]


def test_a_snapshot_brings_every_file_back_and_says_of_which_run_and_step_it_is(workspace: Workspace, tmp_path: Path) -> None:
    workspace.write(FileWrite("a/b/c.txt", content="deep ünïcode"))
    workspace.write(FileWrite("top.txt", content=""))
    other = Workspace(tmp_path / "other")
    assert other.restore(io.BytesIO(snapshot(workspace))) == KEPT
    assert other.files() == workspace.files() == {"a/b/c.txt": "deep ünïcode".encode(), "top.txt": b""}


def test_an_empty_workspace_has_a_snapshot_too(workspace: Workspace, tmp_path: Path) -> None:
    other = Workspace(tmp_path / "other")
    assert other.restore(io.BytesIO(snapshot(workspace))) == KEPT
    assert other.files() == {}


def test_the_same_files_give_the_same_bytes_whenever_and_in_whatever_order_they_were_written(workspace: Workspace, tmp_path: Path) -> None:
    other = Workspace(tmp_path / "other")
    for name in ("b", "a", "c/d"):
        workspace.write(FileWrite(name, content=name))
    for name in ("c/d", "a", "b"):
        other.write(FileWrite(name, content=name))
    assert snapshot(workspace) == snapshot(other)
    assert snapshot(workspace) != snapshot(workspace, Kept(KEPT.run_id, 8))


def test_an_edit_is_made_in_what_is_there(workspace: Workspace) -> None:
    workspace.write(FileWrite("f", content="one two"))
    workspace.write(FileWrite("f", replacements=(Replacement("two", "three"),)))
    assert workspace.files() == {"f": b"one three"}


def test_a_name_that_is_taken_gives_way(workspace: Workspace) -> None:
    workspace.write(FileWrite("a", content="a file"))
    workspace.write(FileWrite("a/b", content="below it"))
    assert workspace.files() == {"a/b": b"below it"}
    workspace.write(FileWrite("a", content="a file again"))
    assert workspace.files() == {"a": b"a file again"}


@pytest.mark.parametrize(
    "bad",
    [
        member("../outside", size=3),
        member("/absolute/../../outside", size=3),
        member("link", tarfile.SYMTYPE, link="/etc/passwd"),
        member("link", tarfile.LNKTYPE, link="../../etc/passwd"),
        member("pipe", tarfile.FIFOTYPE),
        member("device", tarfile.CHRTYPE),
    ],
    ids=lambda made: f"{made.name}:{made.type!r}",
)
def test_an_archive_that_reaches_out_of_the_workspace_is_refused_and_leaves_nothing(
    workspace: Workspace, tmp_path: Path, bad: tarfile.TarInfo
) -> None:
    with pytest.raises(SnapshotUnusable):
        workspace.restore(io.BytesIO(packed(member("good", size=3), bad)))
    assert workspace.files() == {}
    assert [path.name for path in tmp_path.iterdir()] == ["workspace"]


MORE = {"SESSIONSTREAMS.run": KEPT.run_id, "SESSIONSTREAMS.steps": "7", "SESSIONSTREAMS.members": "1"}
"""Of an archive that has an entry less than it says."""


def test_a_snapshot_that_is_cut_flipped_or_none_at_all_is_refused(workspace: Workspace) -> None:
    workspace.write(FileWrite("f", content="some text that is long enough to be worth it" * 50))
    whole = snapshot(workspace)
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    for bad in (
        whole[:-5],
        whole[: len(whole) // 2],
        bytes(flipped),
        b"",
        b"no frame",
        packed(headers={}),
        packed(member("."), headers=MORE),
    ):
        with pytest.raises(SnapshotUnusable):
            workspace.restore(io.BytesIO(bad))
        assert workspace.files() == {}


def test_a_snapshot_that_becomes_too_large_is_refused_before_it_fills_the_disk(workspace: Workspace) -> None:
    workspace.write(FileWrite("zeros", content="\0" * 5_000_000))
    small = snapshot(workspace)
    assert len(small) < 50_000
    with pytest.raises(SnapshotUnusable):
        workspace.restore(io.BytesIO(small), bytes_max=1_000_000)
    assert workspace.files() == {}


def test_pieces_of_a_frame_are_small_whatever_it_holds() -> None:
    file = io.BytesIO()
    with compressing(file) as compressed:
        for _ in range(64):
            compressed.write(b"\0" * (1 << 20))
    file.seek(0)
    pieces = [len(piece) for piece in decompressing(file, 1 << 30)]
    assert sum(pieces) == 64 << 20
    assert max(pieces) <= 256 * 1024
