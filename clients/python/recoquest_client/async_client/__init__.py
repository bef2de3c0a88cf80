"""The client for programs on asyncio; the same methods as `Client`."""

from recoquest_client.async_client.cases import AsyncCases
from recoquest_client.async_client.collections import AsyncCollections
from recoquest_client.async_client.images import AsyncImages
from recoquest_client.async_client.jobs import AsyncJobs
from recoquest_client.async_client.searches import AsyncSearches
from recoquest_client.async_client.studies import AsyncStudies

__all__ = ["AsyncClient"]


class AsyncClient(AsyncCollections, AsyncSearches, AsyncImages, AsyncStudies, AsyncCases, AsyncJobs):
    """A client of one service on asyncio; an asynchronous context that closes its connections."""
