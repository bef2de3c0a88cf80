import numpy as np

from training.common.manifest import Record
from training.data.labels import Labelling, frequent_words, known_labels, positives, words_of


def record(number: int, *texts: str, labels: tuple[str, ...] = ()) -> Record:
    return Record(id=str(number), image=f"{number}.png", split="train", texts=texts, labels=labels)


RECORDS = (
    record(0, "A dog runs with the ball", "The brown dog", labels=("dog", "ball")),
    record(1, "Two dogs, a Dog and a cat!", labels=("dog",)),
    record(2, "a CAT in 3 hats"),
)


def test_labels_are_those_of_the_manifest() -> None:
    names = known_labels(RECORDS)
    assert names == ("ball", "dog")
    expected = np.array([[True, True], [False, True], [False, False]])
    assert np.array_equal(positives(RECORDS, names), expected)
    assert np.array_equal(Labelling(names).of(RECORDS), expected)


def test_words_are_counted_once_a_record_and_tell_something() -> None:
    assert words_of(RECORDS[1]) == {"dogs", "dog", "cat"}
    assert frequent_words(RECORDS, 3) == ("cat", "dog", "ball")
    assert frequent_words(RECORDS, 100)[2:] == ("ball", "brown", "dogs", "hats", "runs")


def test_words_of_any_text_of_a_record_are_its_labels() -> None:
    actual = Labelling(("dog", "brown", "cat"), of_texts=True).of(RECORDS)
    assert actual.tolist() == [[True, True, False], [True, False, True], [False, False, True]]
    assert Labelling(("dog",), of_texts=True).of([]).shape == (0, 1)
