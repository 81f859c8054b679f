"""The pages that the tests of the report use, too."""

from tests.report.page.conftest import page_of

__all__ = ["page_of"]
