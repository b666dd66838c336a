#!/usr/bin/env python3
"""Writes Jane Austen's six novels as one text file, taken from Debian's package r-cran-janeaustenr.

    apt-get download r-cran-janeaustenr
    python3 scripts/austen.py r-cran-janeaustenr_*.deb data/austen.txt

The first argument is the package or the Rdata.rdb unpacked from it. No R is needed: the file is a row of
records, each a 4-byte big-endian length and a zlib stream that holds one R character vector (XDR form,
serialisation version 3). The vectors are read by that format rather than by searching for string
headers, because one line (the "£20,000" of Mansfield Park) is marked UTF-8 and not ASCII.
"""
import io
import lzma
import os
import struct
import sys
import tarfile
import tempfile
import zlib

TITLES = ["EMMA", "MANSFIELD PARK", "NORTHANGER ABBEY", "PERSUASION", "PRIDE AND PREJUDICE", "SENSE AND SENSIBILITY"]
TEXT_BYTES = 4_025_023  # the six books, lines joined by newlines
RDB = "data/Rdata.rdb"


class Bad(Exception):
    """One sentence for the user."""


def members(ar):
    """Name and content of each member of a Debian package (an `ar` archive)."""
    at = 8
    while at + 60 <= len(ar):
        name, size = ar[at : at + 16].decode().strip().rstrip("/"), int(ar[at + 48 : at + 58])
        yield name, ar[at + 60 : at + 60 + size]
        at += 60 + size + size % 2


def read_rdb(path):
    with open(path, "rb") as file:
        blob = file.read()
    if not blob.startswith(b"!<arch>\n"):
        return blob
    for name, content in members(blob):
        if name in ("data.tar.xz", "data.tar.gz", "data.tar"):
            with tarfile.open(fileobj=io.BytesIO(content), mode="r:*") as tar:
                for entry in tar:
                    if entry.name.endswith(RDB):
                        return tar.extractfile(entry).read()
    raise Bad(f"{path} is a package without {RDB} that this script can unpack; give it the unpacked Rdata.rdb")


def strings(record):
    """The lines of one R character vector."""
    if record[:6] != b"X\n\0\0\0\3":
        raise Bad("the package holds a record that is not R's serialisation, version 3")
    at = 18 + struct.unpack(">I", record[14:18])[0]  # after the versions and the name of the encoding
    kind, count = struct.unpack(">II", record[at : at + 8])
    if kind & 0xFF != 16:
        raise Bad("the package holds a record that is not a vector of strings")
    at += 8
    for _ in range(count):
        flags, size = struct.unpack(">II", record[at : at + 8])
        if flags & 0xFF != 9:
            raise Bad("the package holds a vector with something else than strings in it")
        yield record[at + 8 : at + 8 + size]
        at += 8 + size


def books(rdb):
    at = 0
    while at < len(rdb):
        size = struct.unpack(">I", rdb[at : at + 4])[0]
        stream = zlib.decompressobj()
        record = stream.decompress(rdb[at + 4 :])
        if len(record) != size:
            raise Bad(f"a record of the package holds {len(record)} bytes where its header says {size}")
        yield b"\n".join(strings(record))
        at = len(rdb) - len(stream.unused_data)


def write(path, text):
    """The file appears by one rename, complete."""
    folder = os.path.dirname(os.path.abspath(path))
    os.makedirs(folder, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=os.path.basename(path) + ".", dir=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def main():
    if len(sys.argv) != 3:
        raise Bad("usage: austen.py r-cran-janeaustenr_VERSION.deb|Rdata.rdb OUTPUT.txt")
    source, output = sys.argv[1:]
    texts = list(books(read_rdb(source)))
    titles = [text.split(b"\n", 1)[0].decode().upper() for text in texts]
    if titles != TITLES:
        raise Bad(f"{source} holds the books {titles} where the six novels {TITLES} are expected")
    total = sum(map(len, texts))
    if total != TEXT_BYTES:
        raise Bad(f"{source} holds {total:,} bytes of text where {TEXT_BYTES:,} are expected: another version of the package?")
    joined = b"\n".join(texts)
    joined.decode("utf-8")
    write(output, joined)
    print(f"{output}: six novels, {len(joined):,} bytes")


if __name__ == "__main__":
    try:
        main()
    except (Bad, OSError) as error:
        sys.exit(f"austen.py: {error}")
    except (ValueError, IndexError, struct.error, zlib.error, lzma.LZMAError, tarfile.TarError) as error:
        sys.exit(f"austen.py: {sys.argv[1]} cannot be read as the package r-cran-janeaustenr or its Rdata.rdb ({error})")
