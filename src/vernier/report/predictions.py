"""Predictions on single images, for a person and for a program: lines, predictions.json, pictures."""

from pathlib import Path
from typing import Any

from vernier.errors import ConfigError
from vernier.report.pictures import class_sheet, draw_boxes
from vernier.store import write_json

LINES = 20
SHEET = 60  # images on a sheet of classes


class Predictions:
    """Collects what was found, and writes pictures as it comes."""

    def __init__(self, classes: tuple[str, ...], model: str, out: Path | None, min_score: float) -> None:
        self._classes, self._model, self._out, self._min_score = classes, model, out, min_score
        self._images: list[dict[str, Any]] = []
        self._sheet: list[tuple[Path, list[dict[str, Any]]]] = []
        self._names: set[str] = set()
        if out is not None and out.exists() and not out.is_dir():
            raise ConfigError(f"--out {out} is a file; a folder is needed.")

    @property
    def failed(self) -> int:
        return sum(bool(image["error"]) for image in self._images)

    def add(self, path: Path, found: list[dict[str, Any]], error: str | None) -> None:
        picture = None
        if self._out is not None and error is None:
            if any("box" in thing for thing in found) or not found:
                picture = self._out / self._unused(path)
                draw_boxes(path, [t for t in found if t["score"] >= self._min_score], self._classes, picture)
            elif len(self._sheet) < SHEET:
                self._sheet.append((path, found))
        self._images.append(
            {"image": str(path), "error": error, "found": found, "picture": str(picture) if picture else None}
        )

    def _unused(self, path: Path) -> str:
        """The image's own name, with a number where two folders have the same."""
        suffix = path.suffix.lower() if path.suffix.lower() in (".jpg", ".jpeg", ".png", ".webp") else ".png"
        name, number = f"{path.stem}{suffix}", 1
        while name in self._names:
            number += 1
            name = f"{path.stem}-{number}{suffix}"
        self._names.add(name)
        return name

    def document(self) -> dict[str, Any]:
        return {"model": self._model, "classes": list(self._classes), "images": self._images}

    def close(self) -> None:
        """Write what is written once."""
        if self._out is None:
            return
        self._out.mkdir(parents=True, exist_ok=True)
        if self._sheet:
            class_sheet(self._sheet, self._out / "sheet.png")
        write_json(self._out / "predictions.json", self.document())

    def lines(self) -> list[str]:
        """One line an image, as far as a person reads."""
        lines = [f"{image['image']}: {self._line(image)}" for image in self._images[:LINES]]
        if len(self._images) > LINES:
            lines.append(f"... and {len(self._images) - LINES} more images")
        if self.failed:
            lines.append(f"{self.failed} of {len(self._images)} images could not be read")
        if self._out is not None:
            lines.append(f"wrote {self._out}: predictions.json and pictures")
        return lines

    def _line(self, image: dict[str, Any]) -> str:
        if image["error"]:
            return f"cannot be read: {image['error']}"
        found = image["found"]
        if not any("box" in thing for thing in found) and found:
            return "  ".join(f"{t['class']} {100 * t['score']:.1f} %" for t in found)
        seen = [t for t in found if t["score"] >= self._min_score]
        named = "  ".join(f"{t['class']} {t['score']:.2f}" for t in seen[:8])
        return f"{len(seen)} objects  {named}{'  ...' if len(seen) > 8 else ''}" if seen else "no objects"
