"""What ran, in one line: the record that every result carries, and its words.

`measure.what_ran` fills it in. Old files have none; people then read that it was not recorded.
"""

from collections.abc import Sequence
from typing import Literal

from vernier.frozen import frozen

from .codec import omitted

NOT_RECORDED = "what ran: not recorded by this version of Vernier"
Kind = Literal["train", "infer", "eval"]


@frozen
class WhatRan:
    """What ran. `network` names everything that is not as published; `gmac` is the forward pass of one image.

    `start_px` is where progressive resizing begins, `eval_px` the evaluation's size in a training where it is another.
    `gradients` says how several devices exchange them, where that is not the default. `data` says what the images were,
    `feeding` how they reached the network, `device` its kind and name. `convolution` is there if not PyTorch's.
    """

    kind: Kind
    recipe: str = ""
    network: str
    parameters: int
    gmac: float
    image_px: int
    start_px: int | None = omitted()
    eval_px: int | None = omitted()
    classes: int
    batch_per_device: int
    devices: int = 1
    gradients: str | None = omitted()
    data: str = ""
    feeding: str = ""
    precision: str = "fp32"
    mode: str = "eager"
    convolution: str | None = omitted()
    device: str = ""
    threads: int = 1
    torch: str = ""
    vernier: str = ""
    date: str = ""
    smoke: bool = False

    def parts(self) -> dict[str, str]:
        """The line in parts, by what each says."""
        count = "device" if self.devices == 1 else "devices"
        threads = "thread" if self.threads == 1 else "threads"
        return {
            "smoke": "SMOKE RUN, its figures mean nothing" if self.smoke else "",
            "kind": self.kind,
            "network": f"{self.network} ({self.parameters / 1e6:.3g} M parameters, {self.gmac:.3g} GMAC)",
            "image size": self._image_size(),
            "classes": ("1 class" if self.classes == 1 else f"{self.classes:,} classes")
            if self.classes
            else "classes not recorded",
            "batch": f"batch {self.batch_per_device:,}",
            "devices": f"{self.devices:,} {count}{', ' if self.gradients else ''}{self.gradients or ''}",
            "data": f"{self.data}{', ' if self.data and self.feeding else ''}{self.feeding}",
            "precision": self.precision,
            "mode": f"{self.mode}, Winograd convolutions" if self.convolution == "winograd" else self.mode,
            "device": f"{self.device}, {self.threads} {threads}",
            "torch": f"torch {self.torch}" if self.torch else "",
            "Vernier": f"Vernier {self.vernier}" if self.vernier else "",
            "date": self.date,
        }

    def _image_size(self) -> str:
        growing = "" if self.start_px is None else f"{self.start_px} to "
        evaluated = "" if self.eval_px is None else f", evaluated at {self.eval_px} px"
        return f"{growing}{self.image_px} px{evaluated}"

    def line(self) -> str:
        """The one line that says what ran."""
        return line_of([self])


def line_of(several: Sequence[WhatRan | None]) -> str:
    """One line for several results: parts in which they differ list all their values."""
    known = [ran.parts() for ran in several if ran is not None]
    if not known:
        return NOT_RECORDED
    texts = {part: " | ".join(dict.fromkeys(each[part] for each in known if each[part])) for part in known[0]}
    # `batch 32 | batch 64` is written as `batch 32, 64`.
    texts["batch"] = texts["batch"].replace(" | batch ", ", ")
    smoke = f"{texts['smoke']}: " if texts["smoke"] else ""
    return smoke + " · ".join(
        text
        for text in (
            f"{texts['kind']} {texts['network']}",
            texts["image size"],
            texts["classes"],
            f"{texts['batch']} x {texts['devices']}",
            texts["data"],
            f"{texts['precision']} {texts['mode']}",
            texts["device"],
            ", ".join(filter(None, (texts["torch"], texts["Vernier"]))),
            texts["date"],
        )
        if text
    )
