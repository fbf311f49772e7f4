"""The paths of ranks as one: where collectives join them, the walk through ranks, and replays."""
