"""Archives of wheels from elsewhere: nothing leaves the folder, and no size is believed."""

from __future__ import annotations

import gzip
import io
import tarfile
import tracemalloc
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


@pytest.mark.parametrize(
    "kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK]
)
def test_a_header_of_many_megabytes_is_refused_before_it_is_read(tmp_path, kind):
    size = 64 << 20
    path = archive(tmp_path, member("a.whl", size, kind))
    assert path.stat().st_size < size // 500
    tracemalloc.start()
    try:
        message = refused(path, tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    assert message.endswith(f"cannot be unpacked (it claims a header of {size:,} bytes)")


@pytest.mark.parametrize(
    ("kind", "body"), [(tarfile.XHDTYPE, b"11 path=aa\n"), (tarfile.GNUTYPE_LONGNAME, b"aa\0")]
)
def test_thousands_of_headers_before_a_file_are_refused_in_one_line(tmp_path, kind, body):
    path = tmp_path / "a.tar.gz"
    header = member("a.whl", len(body), kind).tobuf(tarfile.GNU_FORMAT)
    path.write_bytes(gzip.compress((header + body.ljust(512, b"\0")) * 3_000 + bytes(1024)))
    assert "cannot be unpacked (maximum recursion depth" in refused(path, tmp_path)


def test_a_damaged_stream_is_refused_in_one_line(tmp_path):
    path = archive(tmp_path, member("a.whl", 200_000))
    raw = bytearray(path.read_bytes())
    raw[40:60] = b"\xff" * 20
    path.write_bytes(raw)
    with pytest.raises(UsageError, match="cannot be unpacked"):
        unpack(path, tmp_path / "out")
