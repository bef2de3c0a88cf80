"""The viewer of studies and the archive behind it."""
