"""Starts a Python harness inside the sandbox: ``start.py MODULE ARGUMENTS...``, or a file, as ``python`` would.

The packages beside this file are found without a variable that the harness would hand on to the commands of its model.
"""

import os
import runpy
import site
import sys

if __name__ == "__main__":
    site.addsitedir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "site"))
    del sys.argv[0]
    if sys.argv[0].endswith(".py"):
        runpy.run_path(sys.argv[0], run_name="__main__")
    else:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
