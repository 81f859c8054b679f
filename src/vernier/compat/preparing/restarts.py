"""Adds restart markers to baseline JPEGs without loss, so that a crop can be cut out of them (`jpeg_slicing`).

The bytes are written by a plug-in of the entry points `vernier.restart_writers`, such as `vernier.kernels`: this module
has its contract, chooses the interval, and refuses what no crop could be cut from.
"""

from typing import Protocol

from vernier.data.decoding.decode import BadImage, refuse_bomb
from vernier.data.decoding.jpeg_slicing import NotSliceable, Segments, find_segments, parse_header
from vernier.errors import ConfigError
from vernier.plugins import describe_failures, load_group

GROUP = "vernier.restart_writers"
TARGET_INTERVAL = 4  # MCUs between restart markers: shorter ones cost bytes, longer ones make crops coarser
MIN_INTERVAL = 3


class RestartWriter(Protocol):
    """Rewrites JPEGs without loss. The entry point names a class without arguments."""

    def check(self) -> None:
        """Raises ConfigError with the reason if it cannot be used on this machine."""

    def rewrite(self, encoded: bytes, interval: int) -> bytes | None:
        """The image as one baseline scan with a restart marker every `interval` MCUs; None for what it leaves as it is,
        damaged files among them. Called by several threads."""


def find_writer() -> RestartWriter:
    """The first writer that can be used here. Raises ConfigError with the reasons if there is none."""
    reasons = []
    for name, plugin in load_group(GROUP, type).items():
        writer: RestartWriter = plugin()
        try:
            writer.check()
            return writer
        except ConfigError as error:
            reasons.append(f"{name}: {str(error).rstrip('.')}")
    why = "; ".join(reasons) or f"no installed package offers an entry point of {GROUP}"
    raise ConfigError(f"Nothing here can write restart markers ({why}).{describe_failures(GROUP)}")


def _choose_restart_interval(mcus_per_row: int) -> int:
    """The divisor of the row's length nearest to 4 in ratio, not below 3; the whole row if there is none."""
    divisors = [n for n in range(MIN_INTERVAL, mcus_per_row + 1) if mcus_per_row % n == 0] or [mcus_per_row]
    return min(divisors, key=lambda n: (max(n / TARGET_INTERVAL, TARGET_INTERVAL / n), n))


def add_restart_markers(encoded: bytes, writer: RestartWriter) -> tuple[bytes, Segments]:
    """The image with restart markers, without loss, and its segments. Raises NotSliceable if it cannot have them."""
    header = parse_header(encoded)
    if not header.sequential:
        raise NotSliceable("not a baseline JPEG")
    if header.components not in (1, 3):
        raise NotSliceable(f"{header.components} color components")
    if not header.common_sampling:
        raise NotSliceable("an unusual sampling of chroma")
    try:
        refuse_bomb(header.width, header.height, len(encoded))
    except BadImage as error:
        raise NotSliceable(str(error)) from None
    rewritten = writer.rewrite(encoded, _choose_restart_interval(header.mcus_per_row))
    if rewritten is None:
        raise NotSliceable("a damaged or unusual JPEG")
    return rewritten, find_segments(rewritten)
