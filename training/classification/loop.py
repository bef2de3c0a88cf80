"""The loop of text classification: batches in, steps, measures on the development sets, checkpoints."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from lightning_fabric import Fabric
from lightning_fabric.wrappers import _FabricModule, _FabricOptimizer
from torch import Tensor

from training.classification.batches import ExampleBatch, ExampleLoader
from training.classification.config import ClassificationRecipe
from training.classification.metrics import chooser, measure
from training.classification.task import ClassificationTask
from training.classification.tasks import GLUE
from training.classification.text_pairs import PairTokens
from training.data.pairs import Position
from training.progress import ProgressBar, progress_bar
from training.recipes.load import dump_recipe
from training.trainer.batches import prefetched
from training.trainer.checkpoint import Checkpoint, random_state, restore_random_state, save_checkpoint
from training.trainer.errors import TrainingError, TrainingInterruptedError
from training.trainer.gradients import gradient_norm
from training.trainer.metrics_log import MetricsLog
from training.trainer.optimisation import learning_rate_factor, set_learning_rate
from training.trainer.run_folder import RunFolder
from training.trainer.stopping import StopSignal


@dataclass
class ClassificationLoop:
    """A run: what it is made of, and where it stands.

    Attributes:
        recipe: Resolved.
        fabric: Device and precision.
        module: Classifier and RECLAIM's term.
        task: The same, set up by Fabric.
        optimizer: Of the task, set up by Fabric.
        train: Training batches.
        dev: Batches of each development set by its name, the one that chooses first.
        folder: Of the run.
        fingerprint: Of the training examples.
        position: Where it stands.
        metrics: Of the best checkpoint so far; empty before the first.
    """

    recipe: ClassificationRecipe
    fabric: Fabric
    module: ClassificationTask
    task: _FabricModule
    optimizer: _FabricOptimizer
    train: ExampleLoader
    dev: Mapping[str, ExampleLoader]
    folder: RunFolder
    fingerprint: str
    position: Position = field(default_factory=Position)
    metrics: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.total_steps = self.recipe.train.epochs * self.train.batches_per_epoch
        self._recipe_yaml = dump_recipe(self.recipe)
        self._saved_at = time.monotonic()

    def run(self, log: MetricsLog, *, show_progress: bool = True) -> None:
        """Go on from where the run stands to its end.

        Raises:
            TrainingInterruptedError: The user or the system asked to stop; the checkpoint is written.
            TrainingError: A loss or a gradient is not a finite number.
        """
        self.task.train()
        done = self.position.step
        with (
            StopSignal() as stop,
            prefetched(self.train.from_position(self.position)) as batches,
            progress_bar("training", self.total_steps, done=done, shown=show_progress) as bar,
        ):
            while self.position.step < self.total_steps:
                figures = self._step(next(batches).to(self.fabric.device))
                self.position = self.position.next(self.train.batches_per_epoch)
                self._report(figures, log, bar)
                measured = self._measure_if_due(log)
                if measured or stop.received or self._checkpoint_due():
                    self.save()
                if stop.received and self.position.step < self.total_steps:
                    raise TrainingInterruptedError(
                        f"Stopped after step {self.position.step:,} of {self.total_steps:,}; the checkpoint "
                        "is written. Repeat the command with --resume to go on."
                    )

    def save(self, *, best: bool = False) -> None:
        """Write the checkpoint of this moment."""
        checkpoint = Checkpoint(
            position=self.position,
            task=self.task.state_dict(),
            optimizer=self.optimizer.state_dict(),
            random=[random_state(self.fabric.device)],
            metrics=self.metrics,
            recipe=self._recipe_yaml,
            data=self.fingerprint,
        )
        save_checkpoint(self.folder.best if best else self.folder.last, checkpoint)
        self._saved_at = time.monotonic()

    def restore(self, checkpoint: Checkpoint) -> None:
        """Take the state of a checkpoint."""
        self.task.load_state_dict(checkpoint.task)
        self.optimizer.optimizer.load_state_dict(checkpoint.optimizer)
        restore_random_state(checkpoint.random[0], self.fabric.device)
        self.position = checkpoint.position
        self.metrics = checkpoint.metrics

    def measure(self) -> dict[str, float]:
        """The figures of the development sets; those of several carry their names."""
        task = GLUE[self.recipe.task]
        self.task.eval()
        figures: dict[str, float] = {}
        for name, loader in self.dev.items():
            outputs, labels = [], []
            for batch in loader.in_order():
                outputs.append(self._outputs(batch.tokens.to(self.fabric.device)))
                labels.append(batch.labels)
            found = measure(task, torch.cat(outputs).double().numpy(), torch.cat(labels).double().numpy())
            prefix = f"{name}/" if len(self.dev) > 1 else ""
            figures |= {prefix + metric: value for metric, value in found.items()}
        self.task.train()
        return figures

    def _outputs(self, tokens: PairTokens) -> Tensor:
        with torch.inference_mode(), self.fabric.autocast():
            outputs: Tensor = self.module.classifier(tokens).logits.float().cpu()
        return outputs

    def _step(self, batch: ExampleBatch) -> dict[str, Tensor]:
        factor = learning_rate_factor(self.recipe.schedule, self.position.step, self.total_steps)
        set_learning_rate(self.optimizer.optimizer, factor)
        tokens = batch.tokens
        total, terms = self.task(
            tokens.input_ids, tokens.attention_mask, tokens.segments, batch.labels, batch.items
        )
        self.optimizer.zero_grad()
        self.fabric.backward(total)
        norm = gradient_norm(list(self.module.parameters()))
        if not torch.isfinite(total + norm):
            what = "gradient" if torch.isfinite(total) else "loss"
            raise TrainingError(
                f"The {what} of step {self.position.step + 1:,} is not a finite number, so the run stopped; "
                "its last checkpoint is from before. Try a lower optimizer.lr, or optimizer.max_grad_norm=1."
            )
        limit = self.recipe.optimizer.max_grad_norm
        if limit is not None:
            self.fabric.clip_gradients(self.task, self.optimizer, max_norm=limit, error_if_nonfinite=False)
        self.optimizer.step()
        self.module.after_step()
        return {"loss": total.detach(), **terms}

    def _report(self, figures: Mapping[str, Tensor], log: MetricsLog, bar: ProgressBar) -> None:
        step = self.position.step
        if step % self.recipe.train.log_every_steps and step != self.total_steps:
            bar.advance()
            return
        values = {name: float(value) for name, value in figures.items()}
        values["learning_rate"] = self.optimizer.optimizer.param_groups[-1]["lr"]
        log.write(step, "train", values)
        bar.advance(note=f"loss {values['loss']:.4g}")

    def _measure_if_due(self, log: MetricsLog) -> bool:
        if self.position.index:
            return False
        task = GLUE[self.recipe.task]
        figures = self.measure()
        log.write(self.position.step, "validation", figures)
        if not self.metrics or chooser(task, figures) > chooser(task, self.metrics):
            self.metrics = figures
            self.save(best=True)
        return True

    def _checkpoint_due(self) -> bool:
        return time.monotonic() - self._saved_at >= 60 * self.recipe.train.checkpoint_minutes
