"""The end of a fine-tuning: its best weights evaluated on test images, and exported to a file that describes itself."""

from collections.abc import Sequence
from pathlib import Path

from vernier.engine.inference.evaluate import evaluate_trained
from vernier.engine.inference.export import describe_model, export, on_cpu
from vernier.engine.inference.trained import ModelChoice, load_model
from vernier.engine.observe import Observer
from vernier.frozen import frozen
from vernier.records.run import EvalResult, EvaluationReport, ModelFile


@frozen
class Finished:
    """A model that is ready for use. `held_out` is the result that chose its weights, `test` one that chose nothing."""

    model: Path
    about: ModelFile
    checkpoint: Path | None
    step: int | None
    held_out: EvalResult | None
    test: EvaluationReport | None


def finish(run: Path, file: Path, *, has_test: bool, observers: Sequence[Observer] = ()) -> Finished:
    """Evaluate the best weights of a run on the test split of its data, and write them to `file` if it is not there."""
    test = None
    if has_test:
        test = evaluate_trained(load_model(ModelChoice(path=run, which="best")), split="test", observers=observers)
    trained = load_model(ModelChoice(path=run, which="best", changed=on_cpu))
    # It is there after an interruption, and whole: exported files get their names when they are.
    if not file.exists():
        export(trained, "safetensors", file)
    return Finished(
        model=file,
        about=describe_model(trained),
        checkpoint=trained.checkpoint,
        step=trained.step,
        held_out=trained.result,
        test=test,
    )
