"""Builds the C++ of src/vernier/kernels as one shared library; everything else is in pyproject.toml.

Without a C++ compiler the package is installed without the library, and everything but the kernels works.
"""

import os
import platform

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

FOLDER = "src/vernier/kernels"
SOURCES = [f"{FOLDER}/{name}.cpp" for name in ("windows", "restarts", "winograd")]
DISPATCH = f"{FOLDER}/dispatch.cpp"
OTHERS = [DISPATCH, *(f"{FOLDER}/{name}.h" for name in ("exported", "resize", "stream"))]
# Not -ffast-math: its start-up code makes the whole process flush small numbers to zero.
FLAGS = ["-std=c++17", "-O3", "-fwrapv", "-fno-math-errno", "-fopenmp", "-Wno-psabi", "-g0"]
# Crops and resizing must round as Python and PyTorch do, without fused multiply-adds; Winograd's products need them.
UNFUSED = "-ffp-contract=off"
# dispatch.cpp asks the processor for what these flags let the compiler use.
AVX2 = ["-mavx2", "-mfma", "-mbmi", "-mbmi2"]
LEVELS = {"plain": [], "avx2": AVX2, "avx512": [*AVX2, *(f"-mavx512{part}" for part in ("f", "bw", "cd", "dq", "vl"))]}


class BuildKernels(build_ext):
    """Compiles the sources once per instruction set, and links the copies in ascending order.

    The order matters: each copy of the C++ library's inline functions has the same name, and the linker keeps the
    first. It must be one that every processor can run.
    """

    def build_extension(self, ext: Extension) -> None:
        x86 = platform.machine().lower() in ("x86_64", "amd64")
        objects = []
        for level, flags in LEVELS.items() if x86 else [("plain", [])]:
            for source in [*ext.sources, *([DISPATCH] if level == "plain" else [])]:
                objects += self.compiler.compile(
                    [source],
                    output_dir=os.path.join(self.build_temp, level),
                    macros=[("VERNIER_LEVEL", level)],
                    extra_postargs=[*FLAGS, *flags, *([] if "winograd" in source else [UNFUSED])],
                    depends=ext.depends,
                )
        path = self.get_ext_fullpath(ext.name)
        self.compiler.link_shared_object(objects, path, extra_postargs=["-fopenmp"], target_lang="c++")

    def get_ext_filename(self, fullname: str) -> str:
        return f"{fullname.replace('.', os.sep)}.so"  # loaded by ctypes: for any version of Python


class AnyPythonWheel(bdist_wheel):
    """A wheel for one kind of machine and any version of Python."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


kernels = Extension("vernier.kernels.libkernels", SOURCES, depends=OTHERS, optional=True)
setup(ext_modules=[kernels], cmdclass={"build_ext": BuildKernels, "bdist_wheel": AnyPythonWheel})
