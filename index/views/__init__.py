"""Vector indexes of this process: loading, catching up, building, snapshots."""
