"""Where samples come from: one reader per format, each giving an image and its label or boxes by index.

`opening` turns what `--data` names into a source; `base` says what every source can do; `containers` reads files that
hold many images, `boxes` images with annotations. May import `data.decoding`, `data.shapes` and `data.unfinished`,
never loading or preparing: order and batches are up to `data.loading`, writing data sets up to
`compat.preparing`.
"""

from .arrays import ArraySource
from .base import BoxSource, EncodedSource, Source
from .containers.shards import ShardSource
from .folder import FolderSource
from .opening import BUILT_IN, open_boxes, open_split

__all__ = [
    "BUILT_IN",
    "ArraySource",
    "BoxSource",
    "EncodedSource",
    "FolderSource",
    "ShardSource",
    "Source",
    "open_boxes",
    "open_split",
]
