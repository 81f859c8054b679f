"""Play what docs/many-machines.md says about several hosts, on two hosts made of namespaces (root only).

python -m tests.hosts                     all scenarios
python -m tests.hosts elastic firewall    some of them
python -m tests.hosts --list
"""

import argparse
import contextlib
import os
import sys
import tempfile
import traceback
from pathlib import Path

from tests.chaos.fork_server import fork_server
from vernier.data.shapes import ShapesSpec, make_shapes

from .machines import why_not
from .scenarios import ALL, Unavailable, play


def main() -> int:
    by_name = {scenario.__name__: scenario for scenario in ALL}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", choices=[[], *by_name])
    parser.add_argument("--list", action="store_true", help="print their names and what each must end with")
    options = parser.parse_args()
    if options.list:
        for name, scenario in by_name.items():
            print(f"{name:28}{scenario.__doc__}")
        return 0
    if why := why_not():
        sys.exit(why)
    failures = 0
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="vernier-hosts-"))
        os.environ["VERNIER_HOME"] = f"{folder}/home"
        server = stack.enter_context(fork_server())
        shapes = make_shapes(Path(folder) / "shapes", ShapesSpec(train=160, val=50, size_px=32, seed=3))
        for name in options.scenarios or by_name:
            own = Path(folder) / name
            own.mkdir()
            try:
                total_s, since_s = play(by_name[name], server, shapes, own)
                ending = f", {since_s:.0f} s after the disturbance" if since_s else ""
                print(f"{name:28}as expected in {total_s:.0f} s{ending}", flush=True)
            except Unavailable as reason:
                print(f"{name:28}not played: {reason}", flush=True)
            except AssertionError as error:
                failures += 1
                where = traceback.extract_tb(error.__traceback__)[-1]
                print(f"{name:28}FAILED: {str(error) or where.line} ({where.name}, line {where.lineno})", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
