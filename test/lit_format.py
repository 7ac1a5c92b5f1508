# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The format of the tests: lit's, with what all tests of a folder require, and with a record of which tests run."""

import contextlib
import os

import lit.formats


@contextlib.contextmanager
def recorded(name):
    """Writes to the file that BSR_TEST_EVENTS names when a test begins and ends, for scripts/run-tests."""
    path = os.environ.get("BSR_TEST_EVENTS")

    def write(event):
        if path:
            with open(path, "a") as file:
                file.write(f"{event} {name}\n")

    write("begin")
    try:
        yield
    finally:
        write("end")


class Format(lit.formats.ShTest):
    """Tests of shell commands, which require config.requires beside the features of their REQUIRES lines."""

    def execute(self, test, lit_config):
        test.requires = list(getattr(test.config, "requires", []))
        with recorded("/".join(test.path_in_suite)):
            return super().execute(test, lit_config)
