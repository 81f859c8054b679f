"""A checkpoint's state.json: how far its run was, and what is needed to use the weights without the run directory."""

from dataclasses import dataclass, field
from typing import Any

from vernier.frozen import frozen
from vernier.records.codec import omitted
from vernier.records.run import EvalResult


@dataclass(kw_only=True)
class Progress:
    """How far a run is; the training loop updates it. Every random choice is a function of it and the seed.

    With the tensors of the checkpoint this is the whole state of a run. `scaler` is the loss scaler's state.
    """

    step: int = 0
    last_eval_step: int = 0
    best_step: int | None = None
    best_value: float | None = None
    result: EvalResult | None = None
    reached_target: bool = False
    scaler: dict[str, int | float] | None = None
    spent_s: dict[str, float] = field(default_factory=dict)


@frozen
class CheckpointState:
    """state.json. `config` is the JSON tree of the run's configuration; `category_ids` are a detector's, per class."""

    step: int
    progress: Progress
    classes: tuple[str, ...]
    channels: int
    data_fingerprint: str
    recipe_digest: str = ""
    config: Any
    category_ids: tuple[int, ...] | None = omitted()
