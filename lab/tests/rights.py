"""What a test may need to be allowed."""

import os

import pytest

needs_root = pytest.mark.skipif(
    # In continuous integration a skip is a failure: there it runs, and fails.
    os.geteuid() != 0 and os.environ.get("CI") != "true",
    reason="needs root: namespaces are made, or a file system is mounted",
)
