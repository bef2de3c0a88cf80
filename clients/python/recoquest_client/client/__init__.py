"""The client for programs with threads or without."""

from recoquest_client.client.cases import Cases
from recoquest_client.client.collections import Collections
from recoquest_client.client.images import Images
from recoquest_client.client.jobs import Jobs
from recoquest_client.client.searches import Searches
from recoquest_client.client.studies import Studies

__all__ = ["Client"]


class Client(Collections, Searches, Images, Studies, Cases, Jobs):
    """A client of one service; a context that closes its connections. Threads may share it."""
