"""Predictions on single images, for a person and for a program: lines, predictions.json, and pictures.

A picture has boxes with names and scores on the image; classifications share a sheet of images beside their most likely
classes.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from vernier.data.decoding.decode import decode
from vernier.errors import ConfigError
from vernier.records.codec import encode
from vernier.records.predictions import Box, ImagePrediction, Predictions, ScoredClass
from vernier.references import given
from vernier.store import write_json
from vernier.wording import plural

SHOWN_LINES = 20
SHOWN_OBJECTS = 8
SHEET_IMAGES = 60
_PICTURE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")
# Okabe and Ito's colours, which are distinct for any colour vision; without black and yellow, as lines on photographs.
_COLOURS = ((230, 159, 0), (86, 180, 233), (0, 158, 115), (213, 94, 0), (204, 121, 167), (0, 114, 178))
_INK, _PAPER, _BAR = (30, 30, 30), (255, 255, 255), (0, 114, 178)
_THUMB_PX, _TEXT_PX, _GAP_PX, _COLUMNS = 128, 224, 12, 3


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
            # A detector may find nothing; a classifier always has a class.
            if not predictions or predictions[0].box:
                # Drawn at once: keeping every image until the end would fill the memory.
                picture = self._out / self._unused_name(path)
                _draw_boxes(path, self._shown(predictions), self._classes, picture)
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
            _class_sheet(self._sheet, self._out / "sheet.png")
        write_json(self._out / "predictions.json", encode(self.document()))

    def lines(self) -> list[str]:
        """One line per image, for the first images and for all that could not be read, and a summary."""
        lines = [f"{image.image}: {self._line(image)}" for image in self._images[:SHOWN_LINES]]
        if others := self._images[SHOWN_LINES:]:
            # However many images there are, one that could not be read must be named.
            unread = [f"{image.image}: {self._line(image)}" for image in others if image.error]
            lines += [f"... and {len(others)} more images{', these among them:' if unread else ''}", *unread]
        if self.failed:
            lines.append(f"{self.failed} of {plural(len(self._images), 'image')} could not be read")
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
        return f"{plural(len(shown), 'object')}  {names}{more}" if shown else "no objects"


# ------------------------------------------------------------------------------------------------------------ pictures


def _draw_boxes(path: Path, objects: list[ScoredClass], classes: tuple[str, ...], out: Path) -> None:
    """Save the image with its objects, the highest score on top."""
    picture = Image.fromarray(decode(path.read_bytes()))
    draw = ImageDraw.Draw(picture)
    line = max(1, round(min(picture.size) / 250))
    # Lines and names grow with the image, or they could not be seen in a large photograph.
    font = ImageFont.load_default(max(10, round(min(picture.size) / 32)))
    coloured = [(o, o.box, _COLOURS[classes.index(o.class_name) % len(_COLOURS)]) for o in reversed(objects) if o.box]
    for _, (left, top, right, bottom), colour in coloured:
        # Pillow draws the last pixel, too; a box ends before it.
        draw.rectangle((left, top, max(left, right - 1), max(top, bottom - 1)), outline=colour, width=line)
    for thing, box, colour in coloured:  # names above every line
        _tag(draw, font, f"{thing.class_name} {thing.score:.2f}", box, colour, picture.size)
    out.parent.mkdir(parents=True, exist_ok=True)
    picture.save(out, quality=92)


def _tag(draw: Any, font: Any, text: str, box: Box, colour: tuple[int, ...], size: tuple[int, int]) -> None:
    """Write the name on a bar above the box; inside it where there is no room above."""
    left, top, right, bottom = draw.textbbox((0, 0), text, font=font)
    width, height = right - left + 6, bottom - top + 4
    x = min(max(0, box[0]), max(0, size[0] - width))
    y = box[1] - height if box[1] >= height else max(0, box[1])
    draw.rectangle((x, y, x + width, y + height), fill=colour)
    # Weights of ITU-R BT.601 for the brightness that a person sees.
    brightness = 0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2]
    draw.text((x + 3 - left, y + 2 - top), text, font=font, fill=(0, 0, 0) if brightness > 128 else (255, 255, 255))


def _class_sheet(rows: Sequence[tuple[Path, Sequence[ScoredClass]]], out: Path) -> None:
    """Save a contact sheet: every image with its most likely classes as bars."""
    cell_w, cell_h = _THUMB_PX + _TEXT_PX + 2 * _GAP_PX, _THUMB_PX + _GAP_PX
    columns = min(_COLUMNS, len(rows))
    sheet = Image.new("RGB", (columns * cell_w + _GAP_PX, -(-len(rows) // columns) * cell_h + _GAP_PX), _PAPER)
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(12)
    for index, (path, guesses) in enumerate(rows):
        x, y = _GAP_PX + index % columns * cell_w, _GAP_PX + index // columns * cell_h
        picture = Image.fromarray(decode(path.read_bytes()))
        scale = _THUMB_PX / max(picture.size)
        size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
        sheet.paste(picture.resize(size), (x + (_THUMB_PX - size[0]) // 2, y + (_THUMB_PX - size[1]) // 2))
        left, bar_px = x + _THUMB_PX + _GAP_PX, _TEXT_PX - 50
        for rank, guess in enumerate(guesses[:5]):
            top = y + rank * _THUMB_PX // 5
            draw.text((left, top), _fit(draw, font, guess.class_name, bar_px), font=font, fill=_INK)
            draw.text((left + _TEXT_PX - 44, top), f"{100 * guess.score:.1f} %", font=font, fill=_INK)
            draw.rectangle((left, top + 16, left + max(1, guess.score * bar_px), top + 19), fill=_BAR)
    out.parent.mkdir(parents=True, exist_ok=True)
    sheet.save(out)


def _fit(draw: Any, font: Any, text: str, width_px: float) -> str:
    """The text, cut with an ellipsis where it is too long."""
    if draw.textlength(text, font=font) <= width_px:
        return text
    while text and draw.textlength(text + "...", font=font) > width_px:
        text = text[:-1]
    return text + "..."
