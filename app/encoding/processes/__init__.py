"""Encoding in processes: a fork server, the processes that it forks, and an encoder made of several."""
