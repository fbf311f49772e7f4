"""Archives of wheels from elsewhere: nothing leaves the folder."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from nsys_llm.core.errors import UsageError
from nsys_llm.install.wheelhouse import pack, unpack


def archive(folder: Path, *members: tarfile.TarInfo) -> Path:
    path = folder / "a.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(bytes(member.size)))
    return path


def member(
    name: str, size: int = 0, kind: bytes = tarfile.REGTYPE, link: str = ""
) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.size, made.type, made.linkname = size, kind, link
    return made


@pytest.mark.parametrize(
    "odd",
    [
        member("../outside.whl"),
        member("nsys-llm-recipes/../../outside.whl"),
        member("nsys-llm-recipes/b.whl", kind=tarfile.SYMTYPE, link="../../outside"),
        member("nsys-llm-recipes/b.whl", kind=tarfile.LNKTYPE, link="/etc/passwd"),
        member("nsys-llm-recipes/b.whl", kind=tarfile.CHRTYPE),
    ],
    ids=lambda odd: f"{odd.name} {odd.type!r}",
)
def test_what_leaves_the_folder_or_is_no_file_is_refused(tmp_path, odd):
    path = archive(tmp_path, member("nsys-llm-recipes/a.whl", 3), odd)
    with pytest.raises(UsageError, match="cannot be unpacked"):
        unpack(path, tmp_path / "out")
    assert sorted(item.name for item in tmp_path.iterdir()) == ["a.tar.gz", "out"]


def test_a_damaged_archive_or_one_without_wheels_is_refused_in_one_line(tmp_path):
    path = archive(tmp_path, member("nsys-llm-recipes/a.whl", 200_000))
    raw = bytearray(path.read_bytes())
    raw[40:60] = b"\xff" * 20
    path.write_bytes(raw)
    with pytest.raises(UsageError, match="cannot be unpacked"):
        unpack(path, tmp_path / "out")
    with pytest.raises(UsageError, match="holds no wheels"):
        unpack(archive(tmp_path, member("other/a.whl", 3)), tmp_path / "other")


def test_what_is_packed_is_unpacked_and_nothing_is_overwritten(tmp_path):
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    (wheels / "a.whl").write_bytes(b"wheel")
    pack(wheels, tmp_path / "a.tar.gz")
    assert (unpack(tmp_path / "a.tar.gz", tmp_path / "out") / "a.whl").read_bytes() == b"wheel"
    with pytest.raises(UsageError, match="exists; move it away"):
        pack(wheels, tmp_path / "a.tar.gz")


def test_what_is_no_archive_is_refused_in_one_line(tmp_path):
    path = tmp_path / "junk.tar.gz"
    path.write_bytes(b"junk" * 700)
    with pytest.raises(UsageError, match=r"^.*junk\.tar\.gz: cannot be unpacked \(.*\)$") as caught:
        unpack(path, tmp_path / "out")
    assert "\n" not in caught.value.message
