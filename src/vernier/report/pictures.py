"""Predictions as pictures: boxes with names and scores on the image, or an image beside its most likely classes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from vernier.data.decoding.decode import decode
from vernier.records.predictions import Box, ScoredClass

# Okabe and Ito's colours, which are distinct for any colour vision; without black and yellow, as lines on photographs.
COLOURS = ((230, 159, 0), (86, 180, 233), (0, 158, 115), (213, 94, 0), (204, 121, 167), (0, 114, 178))
_INK, _PAPER, _BAR = (30, 30, 30), (255, 255, 255), (0, 114, 178)
_THUMB_PX, _TEXT_PX, _GAP_PX, _COLUMNS = 128, 224, 12, 3


def draw_boxes(path: Path, objects: list[ScoredClass], classes: tuple[str, ...], out: Path) -> None:
    """Save the image with its objects, the highest score on top."""
    picture = Image.fromarray(decode(path.read_bytes()))
    draw = ImageDraw.Draw(picture)
    line = max(1, round(min(picture.size) / 250))
    font = ImageFont.load_default(max(10, round(min(picture.size) / 32)))
    coloured = [(o, o.box, COLOURS[classes.index(o.class_name) % len(COLOURS)]) for o in reversed(objects) if o.box]
    for _, (left, top, right, bottom), colour in coloured:
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
    brightness = 0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2]
    draw.text((x + 3 - left, y + 2 - top), text, font=font, fill=(0, 0, 0) if brightness > 128 else (255, 255, 255))


def class_sheet(rows: Sequence[tuple[Path, Sequence[ScoredClass]]], out: Path) -> None:
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
