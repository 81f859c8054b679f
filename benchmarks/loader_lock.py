"""How long loader threads hold the interpreter's lock, and how much they slow down the thread that launches kernels.

A host with any number of cores is emulated: what releases the lock (reading, decoding, resizing) is replaced by a sleep
of the time it takes. The processor time of the process is then what is done under the lock, and what waiting for it
costs. Vernier's Python path (native) and one call per chunk of images (compiled) take turns, with `--threads` loader
threads, in rounds of their own processes. Usage: python benchmarks/loader_lock.py [--rounds 7] [--threads 0 2 14 28]

Per image: processor time in microseconds, and images per second. Beside the loader, the main thread calls a tiny
operation of PyTorch, and trains a small model; both are compared with no loader in the same round.
"""

import argparse
import ctypes
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from vernier.clock import now_s

READ_S, DECODE_S, RESIZE_S = 0.0001, 0.0018, 0.0003  # of a 640 x 480 photograph on one core
CHUNK, PX, IMAGES = 16, 224, 64
TARGET_US, TARGET_SLOWDOWN = 30, 1.10
SECONDS = 1.0


def make_reader(backend: str, folder: Path) -> Any:
    """The reader of training images, with sleeps in place of what releases the lock."""
    import numpy as np
    import simplejpeg

    import vernier.data.augment.crop_flip as crop_flip
    from vernier.config import Augment, Data
    from vernier.data.loading.readers import TrainReader
    from vernier.data.sources.folder import FolderSource
    from vernier.kernels import jpeg

    rows, columns = np.mgrid[0:480, 0:640]
    picture = np.stack([rows * columns % 251, rows % 256, columns % 256], axis=2).astype(np.uint8)
    encoded = simplejpeg.encode_jpeg(picture, 92)
    (folder / "all").mkdir()
    for number in range(IMAGES):
        (folder / "all" / f"{number}.jpg").write_bytes(encoded)
    augment = Augment(crop="random-resized", flip=0.5)
    reader = TrainReader(FolderSource(folder), Data(image_px=PX), augment, 0, backend)
    reader.fill(0, np.arange(CHUNK), np.empty((CHUNK, PX, PX, 3), np.uint8))  # the real path, once

    if backend == "compiled":

        def make_chunk(paths: Any, shards: Any, where: Any, count: int, crops: bytes, *pointers: int) -> None:
            time.sleep(count * (READ_S + DECODE_S + RESIZE_S))  # one call, as in the library
            ctypes.memset(pointers[-1], 1, count)

        jpeg._jpeg_chunk = lambda: make_chunk  # type: ignore[assignment]
        return reader

    def read(self: FolderSource, index: int) -> bytes:
        time.sleep(READ_S)
        return encoded

    def decode_jpeg(*arguments: Any, **options: Any) -> Any:
        time.sleep(DECODE_S)
        return picture

    FolderSource.read = read  # type: ignore[method-assign]
    simplejpeg.decode_jpeg = decode_jpeg
    crop_flip.resize_antialiased = lambda *arguments: time.sleep(RESIZE_S)
    return reader


def measure(backend: str, threads: int) -> dict[str, float]:
    """One process: the loader alone, then the launching thread without and with the loader, in turns."""
    import numpy as np
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        reader = make_reader(backend, Path(scratch))
        running, stop, made = threading.Event(), threading.Event(), [0] * max(1, threads)

        def load(number: int) -> None:
            out, at = np.empty((CHUNK, PX, PX, 3), np.uint8), 0
            while not stop.is_set():
                running.wait()
                reader.fill(at, (np.arange(CHUNK) + at) % IMAGES, out)
                at, made[number] = at + CHUNK, made[number] + CHUNK

        workers = [threading.Thread(target=load, args=(number,)) for number in range(threads)]
        for worker in workers:
            worker.start()
        result = dict[str, float]()
        if threads:
            running.set()
            time.sleep(0.3)  # beyond the first calls
            images, cpu_s, start_s = sum(made), time.process_time(), now_s()
            time.sleep(SECONDS)
            images = sum(made) - images
            result["us_per_image"] = (time.process_time() - cpu_s) / images * 1e6
            result["images_per_s"] = images / (now_s() - start_s)
        tiny = torch.zeros(1)
        model = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(60)])
        works = {"call": lambda: tiny.add_(1), "step": lambda: model(torch.ones(1, 4)).sum().backward()}
        times: dict[str, list[float]] = {f"{name} {state}": [] for name in works for state in ("alone", "beside")}
        for _ in range(12):
            for state in ("alone", "beside"):
                running.set() if state == "beside" else running.clear()
                time.sleep(0.06)  # chunks in the making end
                for name, work in works.items():
                    repeats = 2000 if name == "call" else 10
                    start_s = now_s()
                    for _ in range(repeats):
                        work()
                    times[f"{name} {state}"].append((now_s() - start_s) / repeats * 1e6)
        stop.set()
        running.set()
        for worker in workers:
            worker.join()
        for name in works:
            alone, beside = (statistics.median(times[f"{name} {state}"]) for state in ("alone", "beside"))
            result |= {f"{name}_us": beside, f"{name}_ratio": beside / alone}
        return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, nargs="+", default=[0, 2, 14, 28])
    parser.add_argument("--one", nargs=2, metavar=("BACKEND", "THREADS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.one[0], int(arguments.one[1]))))
        return
    found: dict[tuple[str, int], list[dict[str, float]]] = {}
    for _ in range(arguments.rounds):
        for threads in arguments.threads:
            for backend in ("native", "compiled"):
                command = [sys.executable, __file__, "--one", backend, str(threads)]
                output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
                found.setdefault((backend, threads), []).append(json.loads(output.splitlines()[-1]))
    for (backend, threads), results in found.items():

        def show(name: str, results: list[dict[str, float]] = results) -> str:
            values = [result[name] for result in results if name in result]
            return f"{statistics.median(values):,.2f} ({min(values):,.2f} to {max(values):,.2f})" if values else "-"

        print(
            f"{backend:8s} {threads:2d} threads, n = {len(results)}: {show('us_per_image')} us with the lock per image,"
            f" {show('images_per_s')} img/s; tiny call {show('call_us')} us, {show('call_ratio')} x alone; forward and "
            f"backward {show('step_ratio')} x alone"
        )
    print(f"Targets: at most {TARGET_US} us per image, at most {TARGET_SLOWDOWN} x alone beside 14 threads (compiled).")


if __name__ == "__main__":
    main()
