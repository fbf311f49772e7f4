"""What held each operation of a rank back, the path to an end, and replays of a change.

In the order of their use. `PathOps` are the operations and calls of a rank, `path_edges` what each
waited for. The path: `Outline` cuts the edges into segments between communication, `Blocks` gives
their stretches with what they charge, `kept_whole` tells which stay whole, and `path_forest` is
what one rank hands on, with what `Charging` added up for each `Walk`. The replay: `skeleton` is the
same graph without what no change moves, `rank_graph` and a `Condenser` its weights under each
change, `levels` and `longest` run it, over the ranks that collectives join.

What begins in one rank goes on over ranks in `job/`: `meet` tells which communication of ranks is
one, `job_steps` the steps of the job, `follow_job` and `add_up` its path, `replays` its replays.
"""
