"""`torch/distributed/hccl/__init__.py`. Lightning's HPUParallelStrategy calls `initialize_distributed_hpu` like us.

Importing it registers the backend and, under mpirun, translates Open MPI's variables into torchrun's.
"""

import os

registered: list[str] = []
"""Not Habana's: backends that the import registered."""


def initialize_distributed_hpu(
    world_size: int | None = None, rank: int | None = None, local_rank: int | None = None
) -> tuple[int, int, int]:
    """Values given become RANK, WORLD_SIZE and LOCAL_RANK; otherwise Open MPI's do. The module is that of the rank."""
    given = {"WORLD_SIZE": world_size, "RANK": rank, "LOCAL_RANK": local_rank}
    if None not in given.values():
        os.environ.update({name: str(value) for name, value in given.items()})
    elif "OMPI_COMM_WORLD_RANK" in os.environ and "RANK" not in os.environ:
        for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK"):
            os.environ[name] = os.environ[f"OMPI_COMM_WORLD_{name.removeprefix('WORLD_')}"]
        os.environ.setdefault("MASTER_ADDR", "localhost")
        os.environ.setdefault("MASTER_PORT", "12345")
    world, own = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("LOCAL_RANK", -1))
    if "HLS_MODULE_ID" not in os.environ and own != -1 and world != 1:
        visible = os.environ.get("HABANA_VISIBLE_MODULES")
        os.environ["HLS_MODULE_ID"] = visible.split(",")[own] if visible else str(own)
    return world, int(os.environ.get("RANK", -1)), own


initialize_distributed_hpu()
registered.append("hccl")
