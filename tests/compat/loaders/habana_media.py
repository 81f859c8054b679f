"""Runs the Gaudi reader on the Python half of habana-media-loader; started as a script, with the package's folder.

The compiled half comes with SynapseAI and is replaced at its boundary: `pipe_manager`, which gets the encoded images
and crops of a batch (`run_hpu`) and answers with its pixels (`get_output`). Operators, their arguments, the graph and
its execution are the package's own.
"""

import enum
import json
import sys
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import torch

COMPILED = (
    *(f"media_pipe_{part}" for part in ("api", "nodes", "params", "proxy", "randomizer", "types")),
    *("media_numpy_reader", "media_random_biased_crop", "media_random_flip_cpu", "media_resize"),
    *(f"habana_frameworks.torch{part}" for part in ("", ".hpu", ".utils", ".utils.experimental")),
    "habana_frameworks.mediapipe.backend.cal",
    "av",  # for videos
    "tqdm",
)
FRAMEWORKS = "SYNAPSE_FW PYTHON_FW PYT_FW PYTHON_PYT_FW TF_FW"
TYPES = "NDT UINT8 UINT16 UINT32 UINT64 INT8 INT16 INT32 INT64 FLOAT16 FLOAT32 FLOAT64 BFLOAT16 STRING NA"


def replace_compiled_half() -> Any:
    """Put stand-ins in the place of compiled modules; the pipe manager, whose batches are rows of 0, 1, 2, ..."""
    for name in COMPILED:
        sys.modules[name] = MagicMock(name=name)
    sys.modules["media_pipe_proxy"].fwType = enum.Enum("fwType", FRAMEWORKS)  # type: ignore[attr-defined]
    sys.modules["media_pipe_types"].dType = enum.Enum("dType", TYPES)  # type: ignore[attr-defined]
    from habana_frameworks.mediapipe.backend import graph_legacy

    graph_legacy.graph_processor.process_recipe = lambda self: None  # matches names that the compiled half gives
    manager: Any = sys.modules["habana_frameworks.mediapipe.backend.cal"].pipe_manager.return_value

    def get_output() -> list[Any]:
        images = manager.run_hpu.call_args.args[0]
        pixels = np.broadcast_to(np.arange(len(images), dtype=np.uint8)[:, None, None, None], (len(images), 24, 24, 3))
        return [MagicMock(device="cpu", as_nparray=lambda: pixels.copy())]

    manager.get_output.side_effect = get_output
    return manager


def main(folder: str, shapes: str) -> None:
    sys.path.insert(0, folder)
    manager = replace_compiled_half()
    from vernier.compat.loaders.gaudi_media import GaudiTrainReader
    from vernier.config import Augment, Data, Recipe
    from vernier.data.sources import open_split

    reader = GaudiTrainReader(
        open_split(shapes, "train"), Recipe(data=Data(image_px=24), augment=Augment(), seed=3), torch.device("cpu")
    )
    batches = []
    for first, size in ((20, 6), (26, 6), (32, 4)):
        out = torch.zeros((size, 24, 24, 3), dtype=torch.uint8)
        reader.fill(4, np.arange(first, first + size), out)
        images, crops, _, _, (flips,), *_ = manager.run_hpu.call_args.args
        batches.append(
            {
                "images": [bytes(image).hex() for image in images],
                "crops": crops.tolist(),
                "crop_type": str(crops.dtype),
                "flips": flips.tolist(),
                "rows": out[:, 0, 0, 0].tolist(),
            }
        )
    decoder = manager.decoder_init.call_args.args[0]
    proxies = [call.args[2].name for call in manager.init_pipe_manager.call_args_list]
    print(json.dumps({"batches": batches, "resize": decoder.params["resize"], "frameworks": proxies}))


if __name__ == "__main__":
    main(*sys.argv[1:])
