# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The package of python/ with the compiler inside, for scripts/wheel.sh.

import os

from setuptools import setup
from wheel.bdist_wheel import bdist_wheel


class BundleWheel(bdist_wheel):
    """A wheel for every Python, and for the platform that the environment names."""

    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self):
        return "py3", "none", os.environ["WHEEL_PLATFORM"]


setup(cmdclass={"bdist_wheel": BundleWheel})
