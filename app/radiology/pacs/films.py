"""Files of an archive as the images that a collection takes: read, de-identified, decoded, embedded."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock

from sqlalchemy.orm import Session

from app.decoding.films import Reading
from index.catalogue.collections import get_generation
from index.catalogue.studies import Outcome
from index.engine import SearchEngine
from index.errors import StaleWriteError
from index.home import Home
from index.search.results import ActiveGeneration
from index.writes.embedder import Embedder, ImageEncoder
from index.writes.images import Outcome as WriteOutcome
from index.writes.intake import Compared, Prepared, compare
from index.writes.live import Upload, known_now, put_images
from training.clinical.reports.study_report import StudyReport
from training.common.errors import ImageError
from training.imaging.images import ImageLimits, decode_whole

LoadEncoder = Callable[[Home, ActiveGeneration], ImageEncoder]
Also = Callable[[Session, Mapping[str, WriteOutcome]], None]


ReadInstance = Callable[[bytes], Reading]


@dataclass(frozen=True, slots=True)
class ReadyInstance:
    """An instance whose films can be written.

    Attributes:
        outcome: Outcome once they are written.
        films: Films to write; unchanged ones are left out.
        reason: Why it was not taken.
        generation: Number of the generation that they were prepared for; None: none.
        report: The structured report that it is, without what identifies people; None: it is none.
    """

    outcome: Outcome
    films: tuple[Compared, ...] = ()
    reason: str = ""
    generation: int | None = None
    report: StudyReport | None = None


@dataclass(frozen=True, slots=True)
class _Loaded:
    """The model that a collection is searched with."""

    active: ActiveGeneration
    encoder: ImageEncoder
    embedder: Embedder


class FilmWriter:
    """Writes films to a collection by the model that it is searched with.

    Args:
        engine: Engine of the home.
        collection: Name of the collection.
        load: Loads the encoder of a generation.
        limits: Limits of an image.

    Raises:
        NoActiveGenerationError: The collection has no model.
        UnknownCollectionError: There is no such collection.
    """

    def __init__(self, engine: SearchEngine, collection: str, load: LoadEncoder, limits: ImageLimits) -> None:
        self._engine = engine
        self._collection = collection
        self._load = load
        self._limits = limits
        self._lock = Lock()
        # A pass that finds nothing new loads no encoder.
        self._loaded: _Loaded | None = None
        engine.active(collection)

    def renew(self) -> None:
        """Load the active model of the collection anew for the next films."""
        with self._lock:
            self._loaded = None

    def _model(self) -> _Loaded:
        with self._lock:
            if self._loaded is None:
                active = self._engine.active(self._collection)
                with self._engine.home.catalogue.read() as session:
                    generation, _ = get_generation(session, active.generation)
                encoder = self._load(self._engine.home, active)
                self._loaded = _Loaded(active, encoder, Embedder(generation, encoder))
            return self._loaded

    def prepare(self, reading: Reading) -> ReadyInstance:
        """Decode what is new of an instance; threads may do so at once.

        Raises:
            StaleWriteError: The collection is searched with another model by now.
        """
        if reading.outcome != "taken":
            return ReadyInstance(reading.outcome, reason=reading.reason)
        ids = [film.record.id for film in reading.films]
        model = self._model()
        ready = []
        try:
            known = known_now(self._engine.home, model.active, ids)
            for film in reading.films:
                # The file is de-identified: stored as it is.
                compared = compare(known, film.record, film.content, keep_metadata=True)
                if compared.is_new:
                    compared = self._decoded(compared, model.encoder)
                if compared.prepared is not None:
                    ready.append(compared)
        except ImageError as error:
            return ReadyInstance("refused", reason=str(error))
        return ReadyInstance("taken", tuple(ready), generation=model.active.generation)

    def write(self, instances: Sequence[ReadyInstance], also: Also) -> None:
        """Embed and commit the films of instances, and do something else in the same transaction.

        Raises:
            StaleWriteError: The collection is searched with another model by now, or somebody else wrote the
                same image; nothing is written.
            RecoquestError: The write failed; nothing is written.
        """
        model = self._model()
        films = [film for instance in instances for film in instance.films]
        if any(instance.generation != model.active.generation for instance in instances if instance.films):
            raise StaleWriteError("The collection is searched with another model by now: try again.")
        prepared: list[tuple[Prepared, bytes]] = []
        for film in {film.prepared.record.id: film for film in films if film.prepared is not None}.values():
            assert film.prepared is not None
            prepared.append((film.prepared, film.content))
        pixels = [item.pixels for item, _ in prepared if item.pixels is not None]
        vectors = iter(model.embedder.images(pixels))
        uploads = [Upload(item.write(vectors, {}), content) for item, content in prepared]
        put_images(self._engine.home, model.active, uploads, also)

    def _decoded(self, compared: Compared, encoder: ImageEncoder) -> Compared:
        decoded = decode_whole(compared.content, self._limits, encoder.min_image_side)
        pixels = encoder.prepare_image(decoded.pixels)
        prepared = compared.with_picture(
            decoded.header.media_type, decoded.width, decoded.height, pixels, decoded.flags
        )
        return replace(compared, prepared=prepared)
