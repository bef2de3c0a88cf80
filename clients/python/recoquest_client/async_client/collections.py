"""Collections, their aliases, generations and models."""

from __future__ import annotations

from recoquest_client import answers, operations
from recoquest_client.async_client.connection import AsyncConnection


class AsyncCollections(AsyncConnection):
    """Collections, their aliases, generations and models."""

    async def collections(self) -> tuple[answers.Collection, ...]:
        """Return the collections that the caller may read."""
        return await self._send(operations.list_collections())

    async def collection(self, name: str) -> answers.Collection:
        """Return a collection with the values of its fields."""
        return await self._send(operations.get_collection(name))

    async def create_collection(
        self, name: str, *, model: str | None = None, same_model_as: str | None = None
    ) -> answers.Collection:
        """Begin an empty collection, by a registered model or by that of another collection."""
        return await self._send(operations.create_collection(name, model, same_model_as))

    async def delete_collection(self, name: str) -> None:
        """Remove a collection with all its images."""
        await self._send(operations.delete_collection(name))

    async def rename_collection(self, name: str, new_name: str) -> answers.Collection:
        """Give a collection another name, and return it; roles of keys and aliases follow."""
        return await self._send(operations.rename_collection(name, new_name))

    async def aliases(self) -> tuple[answers.Alias, ...]:
        """Return the aliases of the collections that the caller may read."""
        return await self._send(operations.list_aliases())

    async def put_alias(
        self, alias: str, collection: str, *, etag: str | None = None, only_new: bool = False
    ) -> answers.Alias:
        """Let a name answer for a collection, from one moment on.

        Raises:
            PreconditionError: The alias is not that of `etag`, or is there and should be new.
        """
        return await self._send(operations.put_alias(alias, collection, etag, only_new))

    async def delete_alias(self, alias: str, *, etag: str | None = None) -> None:
        """Remove an alias; its collection stays."""
        await self._send(operations.delete_alias(alias, etag))

    async def generations(self, collection: str) -> tuple[answers.Generation, ...]:
        """Return the generations of a collection, the latest first."""
        return await self._send(operations.list_generations(collection))

    async def activate(self, collection: str, number: int) -> answers.Generation:
        """Search in this generation."""
        return await self._send(operations.activate_generation(collection, number))

    async def roll_back(self, collection: str) -> answers.Generation:
        """Search in the generation before."""
        return await self._send(operations.roll_back_collection(collection))

    async def models(self) -> tuple[answers.Model, ...]:
        """Return the registered models, the latest first."""
        return await self._send(operations.list_models())

    async def model(self, digest: str) -> answers.Model:
        """Return a model with its origin and generations."""
        return await self._send(operations.get_model(digest))

    async def register_model(self, job: int) -> answers.Model:
        """Register the model that a training or retraining has made."""
        return await self._send(operations.register_model(job))
