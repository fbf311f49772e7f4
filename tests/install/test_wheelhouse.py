"""Archives of wheels from elsewhere: nothing leaves the folder, and no size is believed."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

import pytest

from nsys_llm.core.errors import UsageError
from nsys_llm.install import wheelhouse
from nsys_llm.install.wheelhouse import unpack


def archive(folder: Path, *members: tarfile.TarInfo) -> Path:
    path = folder / "a.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(bytes(member.size)))
    return path


def member(name: str, size: int = 0, kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    made = tarfile.TarInfo(f"nsys-llm-recipes/{name}")
    made.size, made.type = size, kind
    return made


def refused(path: Path, folder: Path) -> str:
    with pytest.raises(UsageError) as caught:
        unpack(path, folder / "out")
    assert not (folder / "out").exists()
    return caught.value.message


@pytest.mark.parametrize(
    "kind",
    [
        tarfile.SYMTYPE,
        tarfile.LNKTYPE,
        tarfile.FIFOTYPE,
        tarfile.CHRTYPE,
        tarfile.BLKTYPE,
        tarfile.GNUTYPE_SPARSE,
    ],
)
def test_links_devices_and_files_with_holes_are_refused(tmp_path, kind):
    path = archive(tmp_path, member("a.whl", 3), member("b.whl", kind=kind))
    if kind == tarfile.GNUTYPE_SPARSE:
        # Python does not write any: mark the second header, and mend its sum.
        raw = bytearray(gzip.decompress(path.read_bytes()))
        raw[1024 + 156 : 1024 + 157] = kind
        raw[1024 + 148 : 1024 + 156] = b" " * 8
        raw[1024 + 148 : 1024 + 156] = b"%06o\0 " % sum(raw[1024:1536])
        path.write_bytes(gzip.compress(bytes(raw)))
    assert "neither a file nor a folder" in refused(path, tmp_path)


def test_more_than_wheels_ever_have_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(wheelhouse, "_MOST_BYTES", 999)
    path = archive(tmp_path, member("a.whl", 500), member("b.whl", 500))
    assert "refused, it holds more than" in refused(path, tmp_path)


def test_more_files_than_there_are_wheels_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(wheelhouse, "_MOST_MEMBERS", 2)
    path = archive(tmp_path, *(member(f"{number}.whl") for number in range(3)))
    assert "refused, it holds more than" in refused(path, tmp_path)


def test_a_damaged_stream_is_refused_in_one_line(tmp_path):
    path = archive(tmp_path, member("a.whl", 200_000))
    raw = bytearray(path.read_bytes())
    raw[40:60] = b"\xff" * 20
    path.write_bytes(raw)
    with pytest.raises(UsageError, match="cannot be unpacked"):
        unpack(path, tmp_path / "out")
