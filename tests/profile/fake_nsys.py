"""A stand-in for `nsys export`, and what the tests of exports do with it."""

from __future__ import annotations

import os
import pickle
import time
from pathlib import Path

import pytest
from trace_builder import TraceBuilder

from nsys_llm.core.errors import ProfileError
from nsys_llm.profile.export import open_export

#: Stands in for `nsys export`: the profile holds the number of ns that its one kernel takes, and
#: `{exports}` has an export with all tables for each such number. To make one takes longer, and so
#: does importing pyarrow for the row that lists the tables: these files are kept, too.
FAKE_NSYS = """#!{python}
import json, pathlib, shutil, sys, time, zlib
arguments = sys.argv[1:]
folder = pathlib.Path(__file__).parent
with open(folder / "calls", "a") as calls:
    calls.write(json.dumps(arguments) + "\\n")
made = pathlib.Path(arguments[arguments.index("--output") + 1])
tables = arguments[arguments.index("--tables") + 1].split(",")
made.mkdir(parents=True)
for file in pathlib.Path("{exports}", pathlib.Path(arguments[-1]).read_text()).iterdir():
    if file.stem in tables and not file.stem.startswith("ENUM"):
        shutil.copyfile(file, made / file.name)
record = made / "META_DATA_EXPORT.parquet"
listed = pathlib.Path("{exports}", f"{{zlib.crc32(' '.join(tables).encode())}}.parquet")
if not listed.exists():
    import pyarrow as pa, pyarrow.parquet as pq
    added = dict(name="EXPORT_PARAM_TABLES_TO_EXPORT", value=" ".join(tables))
    pq.write_table(pa.Table.from_pylist([*pq.read_table(record).to_pylist(), added]), listed)
shutil.copyfile(listed, record)
# Half a table stands there until the test allows the other half.
if (folder / "hold").exists():
    kernels = made / "{kernel}.parquet"
    content = kernels.read_bytes()
    kernels.write_bytes(content[: len(content) // 2])
    (folder / "held").touch()
    while (folder / "hold").exists():
        time.sleep(0.01)
    kernels.write_bytes(content)
    for file in made.iterdir():
        file.touch()
"""


def write_exports(folder: Path, *durations_ns: int) -> Path:
    """Write what the stand-in exports of profiles that hold these numbers."""
    for duration_ns in durations_ns:
        builder = TraceBuilder(lazy=False).kernel("k", start_ns=1, duration_ns=duration_ns)
        builder.write_parquet(folder / str(duration_ns))
    return folder


def executable(tmp_path: Path, text: str) -> str:
    folder = tmp_path / "bin"
    folder.mkdir(exist_ok=True)
    (folder / "nsys").write_text(text)
    (folder / "nsys").chmod(0o755)
    return str(folder / "nsys")


def written(path: Path, duration_ns: int) -> Path:
    path.write_text(str(duration_ns))
    aged(path, 3600)
    return path


def aged(path: Path, seconds: int) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def kernel_ns(profile: Path, nsys: str | None, *tables: str, export_dir: Path | None = None) -> int:
    wanted, folder = ("kernels", *tables), str(export_dir) if export_dir else None
    with open_export(profile, wanted, export_dir=folder, nsys=nsys) as opened:
        rows = opened.read("kernels", ("start_ns", "end_ns"))
    return int((rows["end_ns"] - rows["start_ns"]).sum())


def calls(nsys: str) -> int:
    record = Path(nsys).with_name("calls")
    return len(record.read_text().splitlines()) if record.exists() else 0


def failure(profile: Path, nsys: str | None) -> str:
    """Open a profile that cannot be exported, and return the one line that says why."""
    before = sorted(os.listdir(profile.parent))
    with pytest.raises(ProfileError) as caught:
        kernel_ns(profile, nsys)
    assert "\n" not in caught.value.message
    assert caught.value.message.startswith(profile.name)
    assert sorted(os.listdir(profile.parent)) == before
    assert pickle.loads(pickle.dumps(caught.value)).message == caught.value.message
    return caught.value.message
