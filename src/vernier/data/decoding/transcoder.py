"""A program that adds restart markers to JPEGs without loss, as `jpegtran -copy none -optimize -restart NB` does.

It calls the functions that jpegtran is made of (jpeg_read_coefficients, jpeg_write_coefficients) in the libjpeg-turbo
that Pillow brings along. libjpeg ends its process where a file is damaged beyond repair, which is why this is a program
of its own: `restarts` starts it, talks to it and starts another one after such a file.

A request on standard input is REQUEST (bytes of the image, MCUs between markers) and the image; an answer on standard
output is ANSWER (state, bytes) and the new image or a message. The first answer, before any request, says whether the
library can be used. Imports nothing of Vernier, so that it starts in hundredths of a second.
"""

import ctypes
import os
import signal
import struct
import sys
from typing import Any, BinaryIO, NamedTuple, NoReturn

REQUEST, ANSWER = struct.Struct("<II"), struct.Struct("<BI")
DONE, REFUSED, ENDED = range(3)
"""States: the content is an image; a message, and more images may follow; a message, and the program has ended."""


class _Layout(NamedTuple):
    """Sizes and positions in libjpeg's structures on 64-bit systems, fixed for every version of its binary interface.

    jpeg_CreateCompress and jpeg_CreateDecompress compare version and sizes with their own.
    """

    version: int
    decompressor_bytes: int
    compressor_bytes: int
    optimize_at: int
    restart_interval_at: int


_LAYOUTS = {"6.2": _Layout(62, 632, 520, 264, 280), "8.0": _Layout(80, 656, 584, 296, 316)}
_ERRORS_BYTES, _ERROR_EXIT_AT, _OUTPUT_MESSAGE_AT, _FORMAT_MESSAGE_AT = 168, 0, 16, 24
_LONGEST_MESSAGE = 200
_Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_Formatter = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p)


class Unusable(Exception):
    """Pillow's libjpeg cannot be called, with the reason."""


def _answer(state: int, content: bytes) -> None:
    out: BinaryIO = sys.stdout.buffer
    out.write(ANSWER.pack(state, len(content)))
    out.write(content)
    out.flush()


class _Errors:
    """libjpeg's error manager: keeps the first warning, and ends the program where libjpeg cannot go on."""

    def __init__(self, library: Any) -> None:
        self.memory = ctypes.create_string_buffer(_ERRORS_BYTES)
        library.jpeg_std_error(self.memory)
        self._format = _Formatter(self._pointer(_FORMAT_MESSAGE_AT).value or 0)
        self._callbacks = _Callback(self._end), _Callback(self._keep)
        for at, callback in zip((_ERROR_EXIT_AT, _OUTPUT_MESSAGE_AT), self._callbacks, strict=True):
            self._pointer(at).value = ctypes.cast(callback, ctypes.c_void_p).value
        self.message = b""

    def _pointer(self, at: int) -> ctypes.c_void_p:
        return ctypes.c_void_p.from_buffer(self.memory, at)

    def _keep(self, codec: int) -> None:
        text = ctypes.create_string_buffer(_LONGEST_MESSAGE)
        self._format(codec, text)
        self.message = self.message or text.value

    def _end(self, codec: int) -> NoReturn:
        self.message = b""
        self._keep(codec)
        _answer(ENDED, self.message)
        os._exit(1)


class Transcoder:
    """Rewrites JPEGs one after the other. Raises Unusable where Pillow's libjpeg cannot be called."""

    def __init__(self) -> None:
        self._layout, self._library = _load_library()
        self._errors = _Errors(self._library)
        self._free = ctypes.CDLL(None).free
        self._free.argtypes = [ctypes.c_void_p]
        for codec in (self._open_decompressor(), self._open_compressor()):  # ends the program if a layout is not ours
            self._library.jpeg_destroy(codec)

    def _open_decompressor(self) -> Any:
        codec = self._allocate(self._layout.decompressor_bytes)
        size = ctypes.c_size_t(self._layout.decompressor_bytes)
        self._library.jpeg_CreateDecompress(codec, self._layout.version, size)
        return codec

    def _open_compressor(self) -> Any:
        codec = self._allocate(self._layout.compressor_bytes)
        self._library.jpeg_CreateCompress(codec, self._layout.version, ctypes.c_size_t(self._layout.compressor_bytes))
        return codec

    def _allocate(self, size: int) -> Any:
        """A zeroed structure; its first field is the error manager in every version."""
        codec = ctypes.create_string_buffer(size)
        ctypes.c_void_p.from_buffer(codec).value = ctypes.addressof(self._errors.memory)
        return codec

    def rewrite(self, encoded: bytes, interval: int) -> tuple[int, bytes]:
        """The steps of jpegtran's main function. State and content of the answer."""
        library, layout = self._library, self._layout
        self._errors.message = b""
        reader, writer = self._open_decompressor(), self._open_compressor()
        out, out_bytes = ctypes.c_void_p(), ctypes.c_ulong()
        library.jpeg_mem_src(reader, encoded, ctypes.c_ulong(len(encoded)))
        library.jpeg_read_header(reader, 1)
        coefficients = ctypes.c_void_p(library.jpeg_read_coefficients(reader))
        library.jpeg_copy_critical_parameters(reader, writer)
        ctypes.c_int.from_buffer(writer, layout.optimize_at).value = 1
        ctypes.c_uint.from_buffer(writer, layout.restart_interval_at).value = interval
        library.jpeg_mem_dest(writer, ctypes.byref(out), ctypes.byref(out_bytes))
        library.jpeg_write_coefficients(writer, coefficients)
        library.jpeg_finish_compress(writer)
        library.jpeg_destroy_compress(writer)
        library.jpeg_finish_decompress(reader)
        library.jpeg_destroy_decompress(reader)
        rewritten = ctypes.string_at(out, out_bytes.value)
        self._free(out)
        return (REFUSED, self._errors.message) if self._errors.message else (DONE, rewritten)


def _load_library() -> tuple[_Layout, Any]:
    """The libjpeg that Pillow decodes with, found through Pillow itself, and the layout of its structures."""
    from PIL import _imaging

    version = getattr(_imaging, "jpeglib_version", "none")
    turbo = getattr(_imaging, "libjpeg_turbo_version", None)
    wide = ctypes.sizeof(ctypes.c_void_p) == ctypes.sizeof(ctypes.c_long) == 8
    if turbo is None or version not in _LAYOUTS or not wide:
        raise Unusable(f"it has libjpeg {version}{' of libjpeg-turbo ' + turbo if turbo else ''}")
    try:
        library: Any = ctypes.CDLL(_imaging.__file__)  # its symbols include those of the libraries that it needs
        library.jpeg_read_coefficients.restype = ctypes.c_void_p
        for name in ("std_error", "mem_src", "mem_dest", "write_coefficients", "copy_critical_parameters"):
            getattr(library, f"jpeg_{name}")
    except (OSError, AttributeError) as error:
        raise Unusable(str(error)) from None
    return _LAYOUTS[version], library


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program that asks: its end closes standard input
    try:
        transcoder = Transcoder()
    except (Unusable, ImportError) as error:
        _answer(ENDED, str(error).encode())
        return
    _answer(DONE, b"")
    while len(request := sys.stdin.buffer.read(REQUEST.size)) == REQUEST.size:
        size, interval = REQUEST.unpack(request)
        _answer(*transcoder.rewrite(sys.stdin.buffer.read(size), interval))


if __name__ == "__main__":
    main()
