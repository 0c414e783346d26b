"""Starts a Python harness: ``start.py PACKAGES MODULE ARGUMENTS...``, or a file instead of a module.

The folder of packages is found without a variable that the harness would hand on to the commands of its model. Only the
standard library: in a sandbox it is a copy by itself.
"""

import runpy
import site
import sys

if __name__ == "__main__":
    site.addsitedir(sys.argv[1])
    del sys.argv[:2]
    if sys.argv[0].endswith(".py"):
        runpy.run_path(sys.argv[0], run_name="__main__")
    else:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
