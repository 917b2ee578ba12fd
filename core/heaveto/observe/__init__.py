"""The read side: frozen snapshots of runs and a stream of what changed."""
