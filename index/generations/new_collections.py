"""New collections that are empty, and the models that they can be searched with."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from index.catalogue.collections import add_collection, add_generation, require_collection
from index.catalogue.tables import GenerationRow, ModelRow
from index.errors import NoActiveGenerationError
from index.generations.activation import activate
from index.generations.models import find_model
from index.home import Home
from training.common.errors import BundleError


def create_collection(home: Home, name: str, *, model: str | None = None, same_as: str | None = None) -> None:
    """Begin a collection without images that can be searched and written to at once.

    Args:
        home: Home to create the collection in.
        name: Name of the collection.
        model: Digest or name of a registered bundle.
        same_as: Instead of a model, a collection whose bundle it takes.

    Raises:
        CollectionNameError: The name is not valid.
        CollectionExistsError: A collection has this name already.
        UnknownModelError: No model, or more than one, has this name.
        UnknownCollectionError: No collection is named `same_as`.
        NoActiveGenerationError: `same_as` cannot be searched yet.
        BundleError: The bundle's files are gone.
    """
    with home.catalogue.write() as session:
        row = _model_of(session, same_as) if same_as is not None else find_model(session, model or "")
        if not (home.bundles_folder / row.digest).is_dir():
            raise BundleError(
                f"The files of model {row.name!r} are missing: index a collection with it again."
            )
        collection = add_collection(session, name)
        activate(session, add_generation(session, collection.id, row.id))


def _model_of(session: Session, collection: str) -> ModelRow:
    collection_id = require_collection(session, collection).id
    query = (
        select(ModelRow)
        .join(GenerationRow, GenerationRow.model_id == ModelRow.id)
        .where(GenerationRow.collection_id == collection_id, GenerationRow.state == "active")
    )
    row = session.execute(query).scalar_one_or_none()
    if row is None:
        raise NoActiveGenerationError(collection)
    return row
