"""Builds the libFuzzer target of the compiled JPEG code with clang, and runs it.

    python -m tests.fuzz.native                                  a million inputs with a new seed: minutes
    python -m tests.fuzz.native --inputs 10000000 --seed 7 --work runs/jpeg-fuzzing
    python -m tests.fuzz.native --coverage                       what the corpus reaches, in percent

A run begins with the corpus of the repository and what it kept in `--work`, so a stopped one continues there. Any
report of a sanitizer, and any difference from libjpeg-turbo, ends it: the input is written to `--work`.
Needs clang 14 or newer with its runtime, and the headers of libjpeg-turbo: `apt install clang libclang-rt-14-dev llvm
libjpeg62-turbo-dev`.
"""

import argparse
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
KERNELS = HERE.parents[2] / "src" / "vernier" / "kernels"
SOURCES = [HERE / "jpeg.cpp", KERNELS / "windows.cpp", KERNELS / "restarts.cpp"]
# Those of setup.py that change what is computed.
FLAGS = ["-std=c++17", "-O2", "-g1", "-fwrapv", "-fno-math-errno", "-Wno-psabi", "-DVERNIER_LEVEL=plain"]
SANITIZERS = ["-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all"]
COVERAGE = ["-fsanitize=fuzzer", "-fprofile-instr-generate", "-fcoverage-mapping"]
LONGEST_BYTES = 2048


def tool(name: str) -> str | None:
    """A program of LLVM, under its own name or with a version as in Debian."""
    names = [name, *(f"{name}-{version}" for version in range(21, 13, -1))]
    return next((path for each in names if (path := shutil.which(each))), None)


def missing() -> str:
    """What is not installed; empty if the target can be built."""
    if (clang := tool("clang++")) is None:
        return "clang is not installed"
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "probe.cpp"
        source.write_text("#include <cstdio>\n#include <jpeglib.h>\nint main() { return JPEG_LIB_VERSION < 62; }\n")
        done = subprocess.run([clang, "-fsanitize=address", source, "-o", f"{folder}/probe"], capture_output=True)
    return "" if done.returncode == 0 else f"clang cannot build: {done.stderr.decode().strip()[:300]}"


def build(program: Path, options: list[str]) -> None:
    clang = tool("clang++")
    assert clang is not None
    subprocess.run([clang, *FLAGS, *options, *SOURCES, "-ljpeg", "-o", program], check=True)


def fuzz(inputs: int, seed: int, work: Path) -> tuple[int, str]:
    """Run that many inputs; the exit code and what was counted, or what failed."""
    kept = work / "kept"
    kept.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "jpeg"
        build(program, SANITIZERS)
        limits = [f"-runs={inputs}", f"-max_len={LONGEST_BYTES}", "-rss_limit_mb=3000", "-timeout=60"]
        command = [program, *limits, f"-seed={seed}", f"-artifact_prefix={work}/", "-reload=0", kept, CORPUS]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, errors="replace")
    (work / "log").write_text(done.stderr)
    counts = re.findall(r"^COUNTS (.*)$", done.stderr, re.M)
    failures = re.findall(r"^(?:DIFFERENCE|==\d+==ERROR|.*runtime error).*$", done.stderr, re.M)
    return done.returncode, "\n".join([*failures, *counts])


def coverage(inputs: list[Path]) -> dict[str, float]:
    """Percent of lines of each file that these inputs reach."""
    profdata, cov = tool("llvm-profdata"), tool("llvm-cov")
    assert profdata is not None
    assert cov is not None
    with tempfile.TemporaryDirectory() as folder:
        program, raw, merged = (f"{folder}/{name}" for name in ("jpeg", "raw", "merged"))
        build(Path(program), COVERAGE)
        run = [program, "-runs=0", *map(str, inputs)]
        subprocess.run(run, env=os.environ | {"LLVM_PROFILE_FILE": raw}, check=True, capture_output=True)
        subprocess.run([profdata, "merge", "-sparse", raw, "-o", merged], check=True)
        export = [cov, "export", "-summary-only", f"-instr-profile={merged}", program]
        tree = json.loads(subprocess.run(export, check=True, capture_output=True).stdout)
    files = {Path(file["filename"]): file["summary"]["lines"]["percent"] for file in tree["data"][0]["files"]}
    return {path.name: percent for path, percent in files.items() if path.parent == KERNELS}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, help="a new one by default")
    parser.add_argument("--work", type=Path, default=Path("runs/jpeg-fuzzing"), help="keeps what reached new code")
    parser.add_argument("--coverage", action="store_true", help="only print what the corpus and --work reach")
    options = parser.parse_args()
    if why := missing():
        sys.exit(f"{why}. apt install clang libclang-rt-14-dev llvm libjpeg62-turbo-dev")
    if options.coverage:
        folders = [CORPUS, *([options.work / "kept"] if (options.work / "kept").is_dir() else [])]
        for name, percent in coverage(folders).items():
            print(f"{name:14}{percent:6.1f} % of lines")
        return 0
    seed = options.seed or secrets.randbelow(2**31)
    code, text = fuzz(options.inputs, seed, options.work)
    print(f"seed {seed}: {text}")
    return code


if __name__ == "__main__":
    sys.exit(main())
