"""A small simulated GPU job: it writes profiles, and knows what everything really waited for.

    from machine import changes, oracle, scenarios
    from machine import random_program, simulate, write_profiles

    program = scenarios.late_host(ranks_n=4)          # or random_program(seed, certain=True)
    outcome = simulate(program)                        # same program, same outcome, to the ns
    paths = write_profiles(outcome, folder, event_rows=True, sync_rows=True)
    oracle.global_paths(outcome)[k].by_class()         # true path of step k over all ranks
    oracle.local_paths(outcome, rank)[k].segments      # of a rank's device, waiting as a class
    oracle.run_path(outcome)                           # one walk over the whole run
    oracle.job_bounds(outcome), oracle.device_bounds(outcome, rank), oracle.rungs(...)
    faster = simulate(changes.without_fault(program, "late_host"))
    gain_ns = outcome.wall_ns - faster.wall_ns         # the true gain of a fix

- `program`: the instructions of host threads. `simulate` runs them; `outcome` holds operations,
  activities of threads, ranges, rows of waits and events, and for each operation all its
  prerequisites. `Operation.activator()` is the one that finished last, by which paths are made;
  `Operation.binding()` the one that determined the start, lags counted. Paths follow the latter
  with `rule="binding"`, which is what truly held things up: no weight on such a path gains more
  than its time there. How far both differ is how far "finished last" is from the truth
  (`scenarios.balanced_launches`: nearly all). With `rule="usual"` they follow the one whose end and
  usual lag are latest, which is all that a reader of profiles can know.
- Times are of the job's clock. A profile's are `capture_ns` of its rank less; the wall clock that
  it states is off by `clock_error_ns`. All members of a collective end at the same ns, so a reader
  can find the clocks exactly.
- Steps are the ranges `ProfilerStep#N`. Pushing and popping take time, so no call starts in the
  very ns in which a range begins or ends.
- Between calls a thread is in `host_no_cuda`, whose detail is the innermost NVTX range; also before
  its first call and while it waits for another thread, whose time it is from the signal back.
- A wait whose target ended in the ns in which the call began, or earlier, waited for nothing.
- Of operations that end a window in the same ns, the path begins at the lowest rank's, and of one
  rank's at the one launched first.
- With `random_program(seed, certain=True)`, and rows of waits and events, every edge can be read
  from the profiles; else some (hand-overs of threads, dependencies in graphs across streams) can
  only be inferred.
- Paths know nothing of where a capture starts: with `capture_ns` above 0 a profile lacks what began
  before.
"""

from machine.profile_writer import rank_profile, write_profiles
from machine.random_programs import random_program
from machine.simulation import DeadlockError, simulate

__all__ = ["DeadlockError", "random_program", "rank_profile", "simulate", "write_profiles"]
