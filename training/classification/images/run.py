"""One run of image classification, from a recipe and a manifest to the AUC of each label."""

from pathlib import Path

from training.classification.images.config import ImageRecipe
from training.classification.images.model import ImageClassifier, build_start
from training.classification.images.scores import MEAN_AUC, Scorer, Scores
from training.classification.images.training_images import labelled_splits, opened
from training.common.host import keep_freed_memory
from training.common.manifest import Rejections, read_manifest
from training.models.config import ImagePreprocessingConfig
from training.recipes.pretrained_preprocessing import images_as_pretrained
from training.tasks.opening import RunOptions, TaskResult, open_run
from training.tasks.problem import TaskProblem


def classify_images(recipe: ImageRecipe, data: Path, options: RunOptions) -> TaskResult[Scores]:
    """Train a classifier on an image encoder and measure the AUC of each label (ReCo, section 4.3).

    The global random generators are seeded.

    Raises:
        RecoquestError: Something that the user can mend; the message says what.
    """
    keep_freed_memory()
    recipe = _prepared(recipe)
    with open_run(recipe, options) as run:
        start = build_start(recipe, load_pretrained=run.checkpoint is None)
        manifest = read_manifest(data, max_rejected=recipe.data.max_rejected)
        splits = labelled_splits(manifest, recipe.data)
        classifier = ImageClassifier(start.tower, len(splits.labels), frozen=recipe.frozen)
        scorer = Scorer(classifier, start.preprocessing, run.fabric, splits.labels, recipe.train.batch_size)
        broken = splits.train.rejections.continued(len(splits.train.records))
        with opened(splits.train, splits.labels, recipe, start.preprocessing, broken, run) as images:
            run.handle_batch_norm(classifier, smallest=images.smallest_share)
            problem = TaskProblem(
                module=classifier,
                batches=images.batches,
                inputs=images.inputs,
                validate=lambda: scorer.measure(splits.val).figures,
                chosen_by=MEAN_AUC,
                fingerprint=splits.fingerprint + start.digest,
                fabric=run.fabric,
                processes=run.processes,
            )
            loop = run.fit(problem)
        test = problem.measured(lambda: scorer.measure(splits.test, show_progress=run.show_progress))
        unscored = Rejections.of(
            scorer.broken.values(),
            len(splits.val.records) + len(splits.test.records),
            f"the validation and test images of {splits.test.folder}",
        )
        left_out = run.report(manifest.rejections, broken, unscored)
        parts = {"train": splits.train, "validation": splits.val, "test": splits.test}
        return run.finish(
            loop,
            test,
            {
                "task": recipe.task,
                "encoder": start.digest or None,
                "test": test.figures,
                "positives": test.positives,
            },
            {"examples": {name: len(part.records) for name, part in parts.items()}},
            left_out,
        )


def _prepared(recipe: ImageRecipe) -> ImageRecipe:
    """The recipe with the preprocessing of its pretrained tower where it names none."""
    if recipe.model is None:
        return recipe
    given = recipe.preprocessing or ImagePreprocessingConfig()
    images = images_as_pretrained(given, recipe.model.pretrained, "preprocessing")
    return recipe.model_copy(update={"preprocessing": images})
