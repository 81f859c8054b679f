"""Predictions on single images, for a person and for a program: lines, predictions.json, pictures."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from vernier.errors import ConfigError
from vernier.records.codec import encode
from vernier.records.predictions import ImagePrediction, Predictions, ScoredClass
from vernier.references import given
from vernier.store import write_json

from .pictures import class_sheet, draw_boxes

SHOWN_LINES = 20
SHOWN_OBJECTS = 8
SHEET_IMAGES = 60
_PICTURE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")


class PredictionWriter:
    """Collects the predictions of many images; with `out`, draws pictures at once and writes the rest at the end."""

    def __init__(
        self,
        classes: tuple[str, ...],
        model: str,
        out: Path | None,
        min_score: float,
        *,
        prepared: str = "",
        notes: tuple[str, ...] = (),
    ) -> None:
        self._classes, self._model, self._out, self._min_score = classes, model, out, min_score
        self._prepared, self._notes = prepared, notes
        self._images: list[ImagePrediction] = []
        self._sheet: list[tuple[Path, Sequence[ScoredClass]]] = []
        self._names: set[str] = set()
        if out is not None and out.exists() and not out.is_dir():
            raise ConfigError(f"{given('out', out)} is a file. Give a folder.")

    @property
    def failed(self) -> int:
        return sum(bool(image.error) for image in self._images)

    def add(self, image: ImagePrediction) -> None:
        path, predictions = Path(image.image), image.predictions
        if self._out is not None and image.error is None:
            if not predictions or predictions[0].box:
                picture = self._out / self._unused_name(path)
                draw_boxes(path, self._shown(predictions), self._classes, picture)
                image = replace(image, picture=str(picture))
            elif len(self._sheet) < SHEET_IMAGES:
                self._sheet.append((path, predictions))
        self._images.append(image)

    def _shown(self, predictions: Sequence[ScoredClass]) -> list[ScoredClass]:
        return [p for p in predictions if p.score >= self._min_score]

    def _unused_name(self, path: Path) -> str:
        """The image's own name, with a number where two folders have the same."""
        suffix = path.suffix.lower() if path.suffix.lower() in _PICTURE_SUFFIXES else ".png"
        name, number = f"{path.stem}{suffix}", 1
        while name in self._names:
            number += 1
            name = f"{path.stem}-{number}{suffix}"
        self._names.add(name)
        return name

    def document(self) -> Predictions:
        return Predictions(
            model=self._model,
            classes=self._classes,
            prepared=self._prepared,
            notes=self._notes,
            images=tuple(self._images),
        )

    def close(self) -> None:
        """Write predictions.json and the sheet of classes."""
        if self._out is None:
            return
        self._out.mkdir(parents=True, exist_ok=True)
        if self._sheet:
            class_sheet(self._sheet, self._out / "sheet.png")
        write_json(self._out / "predictions.json", encode(self.document()))

    def lines(self) -> list[str]:
        """One line per image, for the first images and for all that could not be read, and a summary."""
        lines = [f"{image.image}: {self._line(image)}" for image in self._images[:SHOWN_LINES]]
        if others := self._images[SHOWN_LINES:]:
            unread = [f"{image.image}: {self._line(image)}" for image in others if image.error]
            lines += [f"... and {len(others)} more images{', these among them:' if unread else ''}", *unread]
        if self.failed:
            lines.append(f"{self.failed} of {len(self._images)} images could not be read")
        if self._out is not None:
            lines.append(f"wrote {self._out}: predictions.json and pictures")
        return lines

    def _line(self, image: ImagePrediction) -> str:
        if image.error:
            return f"cannot be read: {image.error}"
        if image.predictions and not image.predictions[0].box:
            return "  ".join(f"{p.class_name} {100 * p.score:.1f} %" for p in image.predictions)
        shown = self._shown(image.predictions)
        names = "  ".join(f"{p.class_name} {p.score:.2f}" for p in shown[:SHOWN_OBJECTS])
        more = "  ..." if len(shown) > SHOWN_OBJECTS else ""
        return f"{len(shown)} objects  {names}{more}" if shown else "no objects"
