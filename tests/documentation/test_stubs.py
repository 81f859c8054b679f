"""The stub of the public functions is what the requests declare."""

from tests.documentation import stubs


def test_the_stub_is_made_from_the_requests() -> None:
    assert stubs.FILE.read_text(encoding="utf-8") == stubs.text(), "run `make pages`"
