"""The program that rewrites JPEGs: requests, answers, and its end."""

import subprocess
import sys

import pytest

from vernier.data.decoding import transcoder
from vernier.data.decoding.transcoder import ANSWER, DONE, ENDED, REFUSED, REQUEST

from .small_jpegs import small_jpeg


def _answers(*images: bytes) -> tuple[list[tuple[int, bytes]], int]:
    """The program's answers to these images, after the first that says that it is ready; and its exit code."""
    requests = b"".join(REQUEST.pack(len(image), 3) + image for image in images)
    done = subprocess.run([sys.executable, "-P", transcoder.__file__], input=requests, capture_output=True, check=False)
    assert done.stderr == b""
    out, answers, at = done.stdout, [], 0
    while at < len(out):
        state, size = ANSWER.unpack_from(out, at)
        at += ANSWER.size + size
        answers.append((state, out[at - size : at]))
    assert answers[0] == (DONE, b"")
    return answers[1:], done.returncode


def test_every_request_is_answered_in_order_until_the_input_ends() -> None:
    good, warned = small_jpeg(48, 32), small_jpeg(48, 32)[:-60]
    (first, second, third), code = _answers(good, warned, good)
    assert first[0] == DONE
    assert b"\xff\xdd\x00\x04\x00\x03" in first[1]  # the marker DRI with 3 MCUs
    assert (second[0], third) == (REFUSED, first)
    assert b"Premature end" in second[1]
    assert code == 0


@pytest.mark.parametrize("damaged", [b"", b"no JPEG", small_jpeg(48, 32)[:30]])
def test_a_file_beyond_repair_ends_the_program_with_libjpegs_message(damaged: bytes) -> None:
    ((state, message),), code = _answers(damaged, small_jpeg(48, 32))
    assert (state, code) == (ENDED, 1)
    assert b"JPEG" in message or b"Empty" in message
