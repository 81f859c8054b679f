"""Predictions as pictures: boxes with names and scores on the image, or an image beside its most likely classes."""

from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from vernier.data.decoding.decode import decode

# Okabe and Ito's colours, which people with any colour vision tell apart; black and yellow left out, as lines on photographs.
COLOURS = ((230, 159, 0), (86, 180, 233), (0, 158, 115), (213, 94, 0), (204, 121, 167), (0, 114, 178))
_INK, _PAPER, _BAR = (30, 30, 30), (255, 255, 255), (0, 114, 178)


def draw_boxes(path: Path, found: list[dict[str, Any]], classes: tuple[str, ...], out: Path) -> None:
    """The image with its objects, the most certain on top."""
    picture = Image.fromarray(decode(path.read_bytes()))
    draw = ImageDraw.Draw(picture)
    line = max(1, round(min(picture.size) / 250))
    font = ImageFont.load_default(max(10, round(min(picture.size) / 32)))
    for thing in reversed(found):
        colour = COLOURS[classes.index(thing["class"]) % len(COLOURS)]
        left, top, right, bottom = thing["box"]
        draw.rectangle((left, top, max(left, right - 1), max(top, bottom - 1)), outline=colour, width=line)
    for thing in reversed(found):  # names above every line
        colour = COLOURS[classes.index(thing["class"]) % len(COLOURS)]
        _tag(draw, font, f"{thing['class']} {thing['score']:.2f}", thing["box"], colour, picture.size)
    out.parent.mkdir(parents=True, exist_ok=True)
    picture.save(out, quality=92)


def _tag(draw: Any, font: Any, text: str, box: list[float], colour: tuple[int, ...], size: tuple[int, int]) -> None:
    """The name on a bar above the box; inside it where there is no room above."""
    left, top, right, bottom = draw.textbbox((0, 0), text, font=font)
    width, height = right - left + 6, bottom - top + 4
    x = min(max(0, box[0]), max(0, size[0] - width))
    y = box[1] - height if box[1] >= height else max(0, box[1])
    draw.rectangle((x, y, x + width, y + height), fill=colour)
    brightness = 0.299 * colour[0] + 0.587 * colour[1] + 0.114 * colour[2]
    draw.text((x + 3 - left, y + 2 - top), text, font=font, fill=(0, 0, 0) if brightness > 128 else (255, 255, 255))


THUMB, WIDE, GAP = 128, 224, 12


def class_sheet(rows: list[tuple[Path, list[dict[str, Any]]]], out: Path, columns: int = 3) -> None:
    """A contact sheet: every image with its most likely classes as bars."""
    cell_w, cell_h = THUMB + WIDE + 2 * GAP, THUMB + GAP
    columns = min(columns, len(rows))
    sheet = Image.new("RGB", (columns * cell_w + GAP, -(-len(rows) // columns) * cell_h + GAP), _PAPER)
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(12)
    for place, (path, found) in enumerate(rows):
        x, y = GAP + place % columns * cell_w, GAP + place // columns * cell_h
        picture = Image.fromarray(decode(path.read_bytes()))
        scale = THUMB / max(picture.size)
        size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
        sheet.paste(picture.resize(size), (x + (THUMB - size[0]) // 2, y + (THUMB - size[1]) // 2))
        for rank, guess in enumerate(found[:5]):
            top = y + rank * THUMB // 5
            reach = x + THUMB + GAP
            draw.text((reach, top), _fitting(draw, font, guess["class"], WIDE - 50), font=font, fill=_INK)
            draw.text((reach + WIDE - 44, top), f"{100 * guess['score']:.1f} %", font=font, fill=_INK)
            draw.rectangle((reach, top + 16, reach + max(1, guess["score"] * (WIDE - 50)), top + 19), fill=_BAR)
    out.parent.mkdir(parents=True, exist_ok=True)
    sheet.save(out)


def _fitting(draw: Any, font: Any, text: str, width: float) -> str:
    """The text, cut with an ellipsis where it is too long."""
    if draw.textlength(text, font=font) <= width:
        return text
    while text and draw.textlength(text + "...", font=font) > width:
        text = text[:-1]
    return text + "..."
