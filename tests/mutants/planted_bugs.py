"""Bugs that somebody might write, each with the tests that must notice it.

Every entry replaces one passage, which occurs exactly once in its file, by a wrong one. They are
the mistakes that other tools make, and those that this code invites. `run.py` beside this plants
them one at a time and tells which ones no test notices.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Bug(NamedTuple):
    """One mistake.

    Attributes:
        recipe: Whose numbers it would falsify, or "all".
        says: What is wrong, in a few words.
        file: Where, from the root of the repository.
        right: The passage as it is.
        wrong: The passage with the mistake.
        tests: Files below `tests` of which at least one test must fail.
    """

    recipe: str
    says: str
    file: str
    right: str
    wrong: str
    tests: tuple[str, ...]


_ALL: Final = (
    Bug(
        "all",
        "unions end with the last interval, not with the one that reaches furthest",
        "shared/nsys_llm/numeric/intervals.py",
        "np.maximum(np.maximum.accumulate(ends[block]), reached_ns)",
        "np.maximum(ends[block], reached_ns)",
        ("numeric/test_intervals.py",),
    ),
    Bug(
        "all",
        "a run that is terminated waits for its threads",
        "shared/nsys_llm/core/stopping.py",
        "        os._exit(128 + number)",
        "        sys.exit(128 + number)",
        ("run/test_stopping.py",),
    ),
    Bug(
        "all",
        "touching intervals stay apart",
        "shared/nsys_llm/numeric/intervals.py",
        "    opens = starts[1:] > reach[:-1]\n",
        "    opens = starts[1:] >= reach[:-1]\n",
        ("numeric/test_intervals.py",),
    ),
    Bug(
        "all",
        "a window holds the instant at which it ends",
        "shared/nsys_llm/numeric/intervals.py",
        "(index >= 0) & (start_ns < windows[",
        "(index >= 0) & (start_ns <= windows[",
        ("numeric/test_intervals.py",),
    ),
    Bug(
        "all",
        "time is added up beyond the end of a window",
        "shared/nsys_llm/numeric/intervals.py",
        "(ends - np.clip(at_ns, starts, ends))",
        "(ends - np.maximum(at_ns, starts))",
        ("numeric/test_intervals.py",),
    ),
    Bug(
        "all",
        "percentiles are the nearest value below, not interpolated",
        "shared/nsys_llm/numeric/distributions.py",
        "step = (order.high - order.low) * order.hundredths",
        "step = (order.high - order.low) * 0",
        ("numeric/test_distributions.py",),
    ),
    Bug(
        "all",
        "the standard deviation is that of a population",
        "shared/nsys_llm/numeric/distributions.py",
        "pairs = n * (n - 1)",
        "pairs = n * n",
        ("numeric/test_distributions.py",),
    ),
    Bug(
        "all",
        "merging counts keeps one rank's values",
        "shared/nsys_llm/numeric/distributions.py",
        "            np.concatenate([part.count for part in parts]),\n",
        "            np.concatenate([part.count // part.count for part in parts]),\n",
        ("numeric/test_distributions.py",),
    ),
    Bug(
        "all",
        "launches are joined with the latest call of a correlation id",
        "shared/nsys_llm/trace/attribution.py",
        'return np.argsort(starts_ns, kind="stable")',
        'return np.argsort(-starts_ns, kind="stable")',
        ("trace/test_attribution.py",),
    ),
    Bug(
        "all",
        "of several calls of a correlation id the first row is taken for the earliest",
        "shared/nsys_llm/trace/attribution.py",
        "if starts_ns is not None and (table[place] != row).any():",
        "if starts_ns is None and (table[place] != row).any():",
        ("trace/test_attribution.py",),
    ),
    Bug(
        "all",
        "rows of another process are joined, too",
        "shared/nsys_llm/trace/selection.py",
        "    return table.take(np.broadcast_to(np.isin(processes, selected), (len(table),)))",
        "    return table",
        ("trace/test_selection.py", "recipes/llm_hotspots/test_llm_hotspots.py"),
    ),
    Bug(
        "all",
        "a graph traced as a whole counts beside its nodes",
        "shared/nsys_llm/trace/selection.py",
        '    return graphs.take(~(twice & (graphs["correlation_id"] != NULL_INT)))',
        "    return graphs",
        ("contract/test_schema_versions.py", "trace/test_selection.py"),
    ),
    Bug(
        "all",
        "operations that only reach into a window are left out of its sums",
        "shared/nsys_llm/trace/selection.py",
        "keep &= reaches | starts_inside(launches.start_ns, windows)",
        "keep &= starts_inside(launches.start_ns, windows)",
        ("trace/test_selection.py", "recipes/llm_hotspots/test_llm_hotspots.py"),
    ),
    Bug(
        "all",
        "broken rows are kept",
        "shared/nsys_llm/trace/selection.py",
        '    return table.take(sane & (table["device_id"] != NULL_INT))',
        "    return table",
        ("contract/test_bad_rows.py",),
    ),
)

_HOTSPOTS: Final = (
    Bug(
        "llm_hotspots",
        "shared time counts for each kernel in full",
        "shared/nsys_llm/numeric/exclusive.py",
        "    shares[rows] = _split(start_ns[rows],",
        "    _split(start_ns[rows],",
        ("recipes/llm_hotspots/test_llm_hotspots.py",),
    ),
    Bug(
        "llm_hotspots",
        "the odd nanosecond of shared time is lost",
        "shared/nsys_llm/numeric/exclusive.py",
        "    np.add.at(shares, order[earliest], rest[odd])\n",
        "",
        ("recipes/llm_hotspots/test_llm_hotspots.py", "analyses/test_overlap.py"),
    ),
    Bug(
        "llm_hotspots",
        "copies are no busy time: a device that copies is idle",
        "shared/nsys_llm/analyses/device/overlap.py",
        'copies=_union(trace, ("memcpys", "memsets"), device),',
        'copies=_union(trace, ("memsets",), device),',
        ("recipes/llm_hotspots/test_memops.py", "recipes/llm_hotspots/test_llm_hotspots.py"),
    ),
    Bug(
        "llm_hotspots",
        "what runs three at a time is subtracted twice",
        "shared/nsys_llm/analyses/device/overlap.py",
        "        compute_only_ns=total_length_ns(compute) - with_communication - with_copies"
        " + all_three,",
        "        compute_only_ns=total_length_ns(compute) - with_communication - with_copies,",
        ("analyses/test_overlap.py",),
    ),
    Bug(
        "llm_hotspots",
        "a copy hidden by a collective counts as exposed",
        "recipes/llm_hotspots/per_rank/memops.py",
        "for cover in (spans.compute, spans.communication, spans.graphs):",
        "for cover in (spans.compute, spans.graphs):",
        ("recipes/llm_hotspots/test_memops.py",),
    ),
    Bug(
        "llm_hotspots",
        "a rank without a kernel is left out of its median",
        "shared/nsys_llm/numeric/rank_spread.py",
        "        absent_n = self.ranks_n - self.present_n()\n",
        "        absent_n = 0 * self.present_n()\n",
        ("numeric/test_rank_spread.py", "recipes/llm_hotspots/test_balance.py"),
    ),
    Bug(
        "llm_hotspots",
        "an asynchronous copy of pinned memory counts as blocking",
        "recipes/llm_hotspots/per_rank/blocking.py",
        "copied & copies & later & pageable,",
        "copied & copies & later,",
        ("recipes/llm_hotspots/test_memops.py",),
    ),
    Bug(
        "llm_hotspots",
        "small synchronous copies to the device count as blocking",
        "recipes/llm_hotspots/per_rank/blocking.py",
        "copied & copies & ~later & ~staged & (moves[",
        "copied & copies & ~later & (moves[",
        ("recipes/llm_hotspots/test_memops.py",),
    ),
    Bug(
        "llm_hotspots",
        "nodes of graphs are no kernels",
        "recipes/llm_hotspots/per_rank/launches.py",
        "        kernels_n=len(kernels),\n",
        "        kernels_n=int((~is_graph_node(kernels)).sum()),\n",
        ("recipes/llm_hotspots/test_launches.py",),
    ),
    Bug(
        "llm_hotspots",
        "a long gap counts though an operation of no length cuts it",
        "recipes/llm_hotspots/per_rank/launches.py",
        "    return _split(gaps, _instants(trace, device))",
        "    return gaps[:, 1] - gaps[:, 0]",
        ("recipes/llm_hotspots/test_launches.py",),
    ),
)

_TAILS: Final = (
    Bug(
        "tail_stats",
        "all configurations of a kernel are pooled",
        "recipes/tail_stats/per_rank/launches.py",
        "*(kernels[column] for column in CONFIG)]",
        "*(0 * kernels[column] for column in CONFIG)]",
        ("recipes/tail_stats/test_tail_stats.py",),
    ),
    Bug(
        "tail_stats",
        "a rank is measured by its own median, so that a slow one has no excess",
        "recipes/tail_stats/tables/kernels.py",
        "    twice = medians.twice[medians.codes(tails.keys)][tails.key]\n",
        "    twice = twice_medians(tails.order)\n",
        ("recipes/tail_stats/test_tail_stats.py",),
    ),
    Bug(
        "tail_stats",
        "two medians are no outlier's limit but an outlier",
        "shared/nsys_llm/numeric/tails.py",
        "(2 * value > OUTLIER_RATIO * twice_median)",
        "(2 * value >= OUTLIER_RATIO * twice_median)",
        ("numeric/test_tails.py",),
    ),
    Bug(
        "tail_stats",
        "short launches make up for long ones in the excess",
        "shared/nsys_llm/numeric/tails.py",
        "beyond = np.maximum(2 * counts.value - twice_of_value, 0) * counts.count",
        "beyond = (2 * counts.value - twice_of_value) * counts.count",
        ("numeric/test_tails.py",),
    ),
    Bug(
        "tail_stats",
        "a median between two values is the lower one",
        "shared/nsys_llm/numeric/tails.py",
        "return 2 * low + (high - low) * (order.hundredths[:, MEDIAN] // 50)",
        "return 2 * low",
        ("numeric/test_tails.py",),
    ),
    Bug(
        "tail_stats",
        "configurations of two kernels are one when their sizes are",
        "recipes/tail_stats/tables/kernels.py",
        "    names = pd.Series([key[0] for key in kernels.keys], dtype=object)\n",
        "    names = pd.Series([key[2] for key in kernels.keys], dtype=object)\n",
        ("recipes/tail_stats/test_tail_stats.py",),
    ),
    Bug(
        "tail_stats",
        "waiting is the victim's: it causes what it suffers",
        "shared/nsys_llm/analyses/collectives/waits.py",
        "        is_last = start == last\n",
        "        is_last = start == first\n",
        ("analyses/test_collective_waits.py",),
    ),
    Bug(
        "tail_stats",
        "a collective whose ranks never meet has a negative transfer",
        "shared/nsys_llm/analyses/collectives/waits.py",
        "        return np.maximum(self.first_end_ns - self.last_start_ns, 0)",
        "        return self.first_end_ns - self.last_start_ns",
        ("analyses/test_collective_waits.py",),
    ),
    Bug(
        "tail_stats",
        "the odd nanosecond of waiting that two ranks cause is lost",
        "shared/nsys_llm/analyses/collectives/waits.py",
        "caused = each[selected] + np.where(waits.late[met][selected] == place, odd[selected], 0)",
        "caused = each[selected]",
        ("analyses/test_collective_waits.py",),
    ),
    Bug(
        "tail_stats",
        "offsets between clocks have the wrong sign",
        "shared/nsys_llm/analyses/collectives/clocks.py",
        "fitted_line(theirs, theirs - ends)",
        "fitted_line(theirs, ends - theirs)",
        ("analyses/test_collective_clocks.py",),
    ),
    Bug(
        "tail_stats",
        "classes are told though the clocks cannot tell",
        "recipes/tail_stats/tables/collectives.py",
        "untold = ~met | (total_ns <= 0) | (high & low)",
        "untold = ~met | (total_ns <= 0)",
        ("recipes/tail_stats/test_collective_classes.py",),
    ),
    Bug(
        "tail_stats",
        "events spread by chance are a burst",
        "recipes/tail_stats/tables/bursts.py",
        "np.flatnonzero((log < np.log(LARGEST_CHANCE)) & (count >= _LEAST_EVENTS))",
        "np.flatnonzero(count >= _LEAST_EVENTS)",
        ("recipes/tail_stats/test_bursts.py",),
    ),
)

_GAPS: Final = (
    Bug(
        "idle_gaps",
        "a gap begins where the operation before it ended, though another one still runs",
        "shared/nsys_llm/numeric/gaps.py",
        "    reach = np.maximum.accumulate(end_ns)\n    whole =",
        "    reach = end_ns\n    whole =",
        ("numeric/test_gaps.py",),
    ),
    Bug(
        "idle_gaps",
        "operations that touch have a gap of no length between them",
        "shared/nsys_llm/numeric/gaps.py",
        "opens = start_ns[1:] > reach[:-1]",
        "opens = start_ns[1:] >= reach[:-1]",
        ("numeric/test_gaps.py",),
    ),
    Bug(
        "idle_gaps",
        "only kernels keep a device busy",
        "shared/nsys_llm/trace/device_ops.py",
        "    rows = {name: selected for name, selected in rows.items() if selected is None or "
        "selected.size}\n",
        "    rows = {name: rows[name] for name in _COMPUTING if name in rows}\n",
        ("recipes/idle_gaps/test_idle_gaps.py",),
    ),
    Bug(
        "idle_gaps",
        "a gap is the latency of a launch that returned before it began",
        "shared/nsys_llm/analyses/device/idle_split.py",
        "whole = np.where(graph | (ends <= gaps.since_ns), QUEUED, _NOWHERE)",
        "whole = np.where(graph, QUEUED, _NOWHERE)",
        ("analyses/test_idle_split.py",),
    ),
    Bug(
        "idle_gaps",
        "gaps between the nodes of one graph are the host's",
        "shared/nsys_llm/analyses/device/idle_split.py",
        "graph = host.graph_launch[at] & (before == call)",
        "graph = np.zeros(at.shape, dtype=bool)",
        ("analyses/test_idle_split.py", "recipes/idle_gaps/test_idle_causes.py"),
    ),
    Bug(
        "idle_gaps",
        "time in calls before the launch counts as time in none, too",
        "shared/nsys_llm/analyses/device/idle_split.py",
        "    np.subtract.at(free, owner, inside)\n",
        "",
        ("analyses/test_idle_split.py",),
    ),
    Bug(
        "idle_gaps",
        "the profiler's work counts twice",
        "shared/nsys_llm/analyses/device/idle_split.py",
        "            np.subtract.at(whole[code], row, part[code])\n",
        "            pass\n",
        ("analyses/test_idle_split.py", "recipes/idle_gaps/test_idle_causes.py"),
    ),
    Bug(
        "idle_gaps",
        "a copy of pageable memory with Async in its name is a launch",
        "shared/nsys_llm/analyses/device/host_timeline.py",
        '        cause[_staged(trace, calls, (classes == "memcpy")[code])] ='
        ' call_cause("cudaMemcpy")\n',
        "",
        ("recipes/idle_gaps/test_idle_causes.py",),
    ),
    Bug(
        "idle_gaps",
        "ranks stand still together though one of them is not known",
        "recipes/idle_gaps/tables/cross_rank_idle.py",
        "if len(ranks) < 2 or len(ranks) < len(rows):",
        "if len(ranks) < 2:",
        ("recipes/idle_gaps/test_idle_gaps.py", "recipes/idle_gaps/test_idle_merge.py"),
    ),
    Bug(
        "idle_gaps",
        "clocks of ranks are compared as they are",
        "recipes/idle_gaps/tables/cross_rank_idle.py",
        "intervals.idle_ns + at\n",
        "intervals.idle_ns + 0 * at\n",
        ("recipes/idle_gaps/test_idle_gaps.py",),
    ),
    Bug(
        "idle_gaps",
        "the rest of the patterns is lost",
        "recipes/idle_gaps/per_rank/patterns.py",
        "others_ns = sum(part.others_ns for _, part in parts) + int(total_ns[rest].sum())",
        "others_ns = sum(part.others_ns for _, part in parts)",
        ("recipes/idle_gaps/test_idle_gaps.py",),
    ),
)

_PHASES: Final = (
    Bug(
        "nvtx_phase_attribution",
        "an operation belongs to the range that is open while it runs",
        "shared/nsys_llm/analyses/nvtx/attributed_ops.py",
        "        return np.where(row >= 0, self.calls_ns[row], NULL_INT)\n",
        "        return np.where(row >= 0, self.start_ns[rows], NULL_INT)\n",
        ("analyses/test_phase_times.py", "recipes/nvtx_phase_attribution/test_phases.py"),
    ),
    Bug(
        "nvtx_phase_attribution",
        "a range holds the instant at which it ends",
        "shared/nsys_llm/numeric/enclosing.py",
        "    place = np.where((position >= 0) & (end_ns[position] > at_ns), position, -1)\n",
        "    place = np.where((position >= 0) & (end_ns[position] >= at_ns), position, -1)\n",
        ("numeric/test_enclosing.py",),
    ),
    Bug(
        "nvtx_phase_attribution",
        "ranges of another thread hold a launch",
        "shared/nsys_llm/analyses/nvtx/nvtx_tree.py",
        "        return np.where(self.threads[place] == global_tid, place, -1)\n",
        "        return place\n",
        ("analyses/test_nvtx_tree.py",),
    ),
    Bug(
        "nvtx_phase_attribution",
        "of ranges with one start the shorter is the outer",
        "shared/nsys_llm/analyses/nvtx/nvtx_tree.py",
        "        order = np.lexsort((-end_ns, start_ns))\n        row, start_ns",
        "        order = np.lexsort((end_ns, start_ns))\n        row, start_ns",
        ("analyses/test_nvtx_tree.py",),
    ),
    Bug(
        "nvtx_phase_attribution",
        "time of inner ranges is not that of the outer",
        "shared/nsys_llm/analyses/nvtx/nvtx_tree.py",
        "return np.asarray(until[self._behind] - until[:-1])",
        "return values",
        ("analyses/test_nvtx_tree.py", "recipes/nvtx_phase_attribution/test_phases.py"),
    ),
    Bug(
        "nvtx_phase_attribution",
        "what no range holds is left out of the total",
        "shared/nsys_llm/analyses/nvtx/phase_times.py",
        "    codes[ops.every.method == NO_API] = phases_n + 2\n    return codes",
        "    codes[ops.every.method == NO_API] = phases_n\n    return codes",
        ("analyses/test_phase_times.py", "recipes/nvtx_phase_attribution/test_phases.py"),
    ),
    Bug(
        "nvtx_phase_attribution",
        "the phase is that of the innermost range, though only one around it has one",
        "shared/nsys_llm/analyses/nvtx/phase_times.py",
        "    owner = gathered(np.append(tree.nearest(chosen), -1).astype(np.int32), every.piece)\n",
        "    owner = np.where(np.append(chosen, False)[every.piece], every.piece, -1)\n",
        ("analyses/test_phase_times.py", "recipes/nvtx_phase_attribution/test_phases.py"),
    ),
    Bug(
        "nvtx_phase_attribution",
        "a node of a graph belongs to its capture, whatever is asked for",
        "shared/nsys_llm/analyses/nvtx/attributed_ops.py",
        "    if not capture_first:\n",
        "    if False:\n",
        ("analyses/test_phase_times.py", "recipes/nvtx_phase_attribution/test_phases.py"),
    ),
    Bug(
        "nvtx_phase_attribution",
        "warm-up steps are in the percentiles",
        "recipes/nvtx_phase_attribution/tables/steps.py",
        "    mask = step_rows.warmup if which == WARMUP else step_rows.steady\n",
        "    mask = step_rows.warmup if which == WARMUP else step_rows.steady | step_rows.warmup\n",
        (
            "recipes/nvtx_phase_attribution/test_phases.py",
            "recipes/nvtx_phase_attribution/test_phase_runs.py",
        ),
    ),
    Bug(
        "nvtx_phase_attribution",
        "percentiles of steps are medians of the ranks' medians",
        "recipes/nvtx_phase_attribution/tables/steps.py",
        "    values = joined([values for group in groups for values in group])\n",
        "    groups = [[np.sort(rank_values)[rank_values.size // 2 :][:1] for rank_values in "
        "group] for group in groups]\n"
        "    group = np.repeat(np.arange(len(groups)), [sum(map(len, group)) for group in "
        "groups])\n"
        "    values = joined([values for group in groups for values in group])\n",
        (
            "recipes/nvtx_phase_attribution/test_phases.py",
            "recipes/nvtx_phase_attribution/test_phase_runs.py",
        ),
    ),
    Bug(
        "nvtx_phase_attribution",
        "the rank that waits longest is the slow one",
        "recipes/nvtx_phase_attribution/tables/steps.py",
        "                [work[name] for name in names],\n",
        "                None,\n",
        (
            "recipes/nvtx_phase_attribution/test_phase_runs.py",
            "recipes/nvtx_phase_attribution/test_phases_planted.py",
            "recipes/nvtx_phase_attribution/test_phases.py",
        ),
    ),
    Bug(
        "nvtx_phase_attribution",
        "the span of a range is the time in which something ran",
        "recipes/nvtx_phase_attribution/per_rank/range_spans.py",
        "    return span_ns, span_ns - clipped_lengths(first_ns, last_ns, busy)",
        "    return span_ns, 0 * span_ns",
        (
            "recipes/nvtx_phase_attribution/test_phases.py",
            "recipes/nvtx_phase_attribution/test_phase_runs.py",
        ),
    ),
)

_DIFF: Final = (
    Bug(
        "trace_diff",
        "the effect of the number of calls is at the mean of the input",
        "shared/nsys_llm/numeric/effects.py",
        "        _half_even((n1 - n0) * t0, n0) if both else whole\n",
        "        _half_even((n1 - n0) * (t0 + whole), n1) if both else whole\n",
        ("numeric/test_effects.py",),
    ),
    Bug(
        "trace_diff",
        "a kernel that is new has no effect",
        "shared/nsys_llm/numeric/effects.py",
        "if both else whole\n",
        "if both else 0\n",
        ("numeric/test_effects.py",),
    ),
    Bug(
        "trace_diff",
        "equal durations count as longer ones",
        "shared/nsys_llm/numeric/rank_tests.py",
        "    pairs = zip(others.tolist(), (2 * below + first_counts).tolist(), strict=True)\n",
        "    pairs = zip(others.tolist(), (2 * below + 2 * first_counts).tolist(), strict=True)\n",
        ("numeric/test_rank_tests.py",),
    ),
    Bug(
        "trace_diff",
        "p-values are not adjusted for their number",
        "shared/nsys_llm/numeric/rank_tests.py",
        "    scaled = p_value[order] * order.size / np.arange(1, order.size + 1)\n",
        "    scaled = p_value[order]\n",
        ("numeric/test_rank_tests.py",),
    ),
    Bug(
        "trace_diff",
        "a change of just the limit fails the gate",
        "shared/nsys_llm/manifest/gates.py",
        "    if change <= allowed:\n",
        "    if change < allowed:\n",
        ("manifest/test_gates.py",),
    ),
    Bug(
        "trace_diff",
        "a metric that cannot be computed passes its gate",
        "shared/nsys_llm/manifest/gates.py",
        '        return Judgement(NOT_COMPARABLE, None, "the metric cannot be computed for both'
        ' runs")\n',
        "        return Judgement(PASS, None)\n",
        ("manifest/test_gates.py",),
    ),
    Bug(
        "trace_diff",
        "a change that is sure, but tiny, is a regression",
        "recipes/trace_diff/tables/kernels.py",
        'real = (q_value < options["alpha"]) & (np.abs(change_pct) >= floor_pct)\n'
        "    real &= np.abs(moved) > 2 * tick_ns\n",
        'real = q_value < options["alpha"]\n',
        (
            "recipes/trace_diff/test_trace_diff.py",
            "recipes/trace_diff/test_trace_diff_undecided.py",
        ),
    ),
    Bug(
        "trace_diff",
        "noise between equal runs does not count",
        "recipes/trace_diff/tables/kernels.py",
        "        floor_pct = np.fmax(floor_pct, noise)\n",
        "        pass\n",
        ("recipes/trace_diff/test_trace_diff_gates.py",),
    ),
    Bug(
        "trace_diff",
        "runs with another number of steps are compared by their sums",
        "recipes/trace_diff/tables/comparability.py",
        "        return (before.step, before.steps_n) != (after.step, after.steps_n)\n",
        "        return False\n",
        (
            "recipes/trace_diff/test_trace_diff_gates.py",
            "recipes/trace_diff/test_trace_diff_undecided.py",
        ),
    ),
    Bug(
        "trace_diff",
        "phases that only one run has are left out of the changes",
        "recipes/trace_diff/tables/sums.py",
        "{name for side in sides for name, sums in side.items() if sums != (0, 0)}",
        "sides[0].keys() & sides[1].keys()",
        ("recipes/trace_diff/test_trace_diff.py",),
    ),
    Bug(
        "trace_diff",
        "transfer counts once for all ranks, waiting for each",
        "recipes/trace_diff/tables/collectives.py",
        "        int(waits.transfer_ns[met].sum()) * len(sequence.owners),\n",
        "        int(waits.transfer_ns[met].sum()),\n",
        ("recipes/trace_diff/test_trace_diff_story.py",),
    ),
)

_OVERVIEW: Final = (
    Bug(
        "llm_overview",
        "a host is part of any wait that is replayed",
        "recipes/llm_overview/tables/joins.py",
        "    return counts and not own and 2 * sum(map(_about_ns, replayed)) > _about_ns(host)\n",
        "    return counts and not own\n",
        ("recipes/llm_overview/test_joins.py",),
    ),
    Bug(
        "llm_overview",
        "the finding with the largest price speaks, not the one that says why",
        "recipes/llm_overview/tables/joins.py",
        "    ordered = sorted(sources, key=lambda source: -source[1].specificity)\n",
        "    ordered = list(sources)\n",
        ("recipes/llm_overview/test_joins.py",),
    ),
    Bug(
        "all",
        "a replay counts that keeps waits which its change would shorten",
        "shared/nsys_llm/report/prices/replays.py",
        '        if (row["wait_pct"] or 0.0) > _MOST_OF_PATH_PCT:\n',
        '        if (row["wait_pct"] or 0.0) > 100.0:\n',
        ("report/test_prices.py",),
    ),
    Bug(
        "all",
        "a bound stands before an estimate that is smaller",
        "shared/nsys_llm/report/price.py",
        "        return self.severity == TAIL, self.about_ns is None, -self.gain_pct, -bound_pct\n",
        "        return self.severity == TAIL, False, -self.gain_pct, -bound_pct\n",
        ("report/test_findings.py",),
    ),
    Bug(
        "llm_overview",
        "the timeline shows only what filters leave",
        "shared/nsys_llm/run/second_look.py",
        "{**unfiltered(run.options), **FULL_NAMES}",
        "{**run.options, **FULL_NAMES}",
        ("recipes/llm_overview/test_timeline.py",),
    ),
    Bug(
        "llm_overview",
        "a long stretch of the timeline swallows its neighbors",
        "shared/nsys_llm/analyses/timeline/segments.py",
        "    new[1:] = long[1:] | long[:-1] | (cell",
        "    new[1:] = long[1:] | (cell",
        ("analyses/test_timeline_segments.py",),
    ),
    Bug(
        "llm_overview",
        "what is matched with other ranks is not matched, too",
        "shared/nsys_llm/analyses/timeline/step_lanes.py",
        "            rest = subtract_intervals(rest, spans)\n",
        "            rest = rest[:]\n",
        ("recipes/llm_overview/test_timeline.py",),
    ),
    Bug(
        "llm_overview",
        "a window is marked on the lane of the rank to blame, whose clock it is not in",
        "recipes/llm_overview/tables/marks.py",
        'blamed_rank(row) if row["opportunity"] == 1 else None',
        "blamed_rank(row)",
        ("recipes/llm_overview/test_marks.py",),
    ),
    Bug(
        "all",
        "what a rank allocated and freed stays in use on the timeline",
        "shared/nsys_llm/analyses/timeline/recorded.py",
        "np.concatenate((size[begun], -size[freed])),",
        "np.concatenate((size[begun], 0 * size[freed])),",
        ("run/test_perfetto_tracks.py",),
    ),
)

#: All of them, by recipe.
_BUDGET: Final = (
    Bug(
        "step_budget",
        "an estimate is larger than its bound",
        "shared/nsys_llm/report/prices/pricing.py",
        "    return max(min(round(time_ns), round(most_ns)), 0)\n",
        "    return max(round(time_ns), 0)\n",
        ("report/test_prices.py",),
    ),
)

PLANTED: Final = (*_ALL, *_HOTSPOTS, *_TAILS, *_GAPS, *_PHASES, *_DIFF, *_OVERVIEW, *_BUDGET)
