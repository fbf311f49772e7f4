"""The wall split of a real pair against SQL that knows none of our code."""

from __future__ import annotations

import sqlite3

import pytest
from results import rows, tables_of

pytestmark = pytest.mark.traces

#: Kinds of kernels by words in their names, enough for this model.
KIND = """
    CASE WHEN name LIKE '%flash_fwd%' THEN 'attention'
         WHEN name LIKE 'nvjet%' THEN 'gemm'
         WHEN name LIKE 'nccl%' THEN 'communication'
         WHEN name LIKE '%at::native::%' THEN 'pointwise' ELSE 'odd' END
"""

#: Every instant at which something begins or ends makes a segment, and each segment has the first
#: class that covers it; no two kernels that compute overlap by kind here, or the sums would differ.
SPLIT = f"""
WITH op AS (
    SELECT start, end, deviceId AS device, globalPid AS process, {KIND} AS kind
    FROM (SELECT k.*, s.value AS name FROM CUPTI_ACTIVITY_KIND_KERNEL k
          JOIN StringIds s ON s.id = k.demangledName)
    UNION ALL SELECT start, end, deviceId, globalPid, 'copies' FROM CUPTI_ACTIVITY_KIND_MEMCPY
    UNION ALL SELECT start, end, deviceId, globalPid, 'copies' FROM CUPTI_ACTIVITY_KIND_MEMSET
),
span AS (SELECT device, process, min(start) AS low, max(end) AS high FROM op GROUP BY 1, 2),
flush AS (
    SELECT start, end, globalTid >> 24 AS process FROM PROFILER_OVERHEAD
    WHERE overheadType NOT IN (2, 6, 7, 8)
    UNION ALL SELECT start, end, globalTid >> 24 FROM CUPTI_ACTIVITY_KIND_OVERHEAD
    WHERE overheadType IN (3, 4, 5)
),
told AS (
    SELECT device, start, end, kind, CASE kind WHEN 'communication' THEN 2 WHEN 'copies' THEN 3
        ELSE 1 END AS place FROM op
    UNION ALL
    SELECT span.device, max(flush.start, low), min(flush.end, high), 'profiler', 4
    FROM flush JOIN span ON flush.process = span.process >> 24
    WHERE flush.start < high AND flush.end > low
),
edge AS (SELECT device, start AS at FROM told UNION SELECT device, end FROM told),
segment AS (SELECT device, at AS low, lead(at) OVER (PARTITION BY device ORDER BY at) AS high
            FROM edge)
SELECT device, coalesce((
    SELECT kind FROM told WHERE told.device = segment.device AND told.start <= low
        AND told.end >= high ORDER BY place, told.start LIMIT 1), 'idle') AS class,
    sum(high - low) FROM segment WHERE high > low GROUP BY 1, 2
"""

POINTWISE = ("elementwise", "memory", "norm", "activation", "reduction")


def truth_of(path):
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
        return {(device, name): ns for device, name, ns in connection.execute(SPLIT)}


def told_of(wall):
    sums = {}
    for device, name, detail, ns in rows(wall, "device_id wall_class detail time_ns"):
        kind = "pointwise" if detail in POINTWISE else detail if name == "compute" else name
        sums[device, kind] = sums.get((device, kind), 0) + ns
    return sums


@pytest.mark.nightly("after")
@pytest.mark.parametrize("run", ["before", "after"])
def test_the_split_of_each_gpu_is_that_of_sql_to_the_nanosecond(traces, tmp_path, run):
    path = traces / "h100_mfu" / f"{run}.sqlite"
    assert told_of(tables_of(tmp_path / "out", path)["wall"]) == truth_of(path)
