# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The package of python/ with the compiler inside, for scripts/wheel.sh.

import os
import shutil

from setuptools import setup
from wheel.bdist_wheel import bdist_wheel


class BundleWheel(bdist_wheel):
    """A wheel for every Python, and for the platform that the environment names."""

    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = False

    def write_wheelfile(self, wheelfile_base, *args, **kwargs):
        """The licences of what the wheel carries lie beside its own."""
        super().write_wheelfile(wheelfile_base, *args, **kwargs)
        shutil.copytree(os.environ["WHEEL_LICENCES"], os.path.join(wheelfile_base, "licenses"))

    def get_tag(self):
        return "py3", "none", os.environ["WHEEL_PLATFORM"]


setup(cmdclass={"bdist_wheel": BundleWheel})
