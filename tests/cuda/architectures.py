#!/usr/bin/env python3
"""A library has device code for every architecture that is named. Arguments: the library, then
numbers such as 90. Reads the headers of the fat binaries in it (as cuobjdump does, which not every
toolkit has): 16 bytes with a magic number, then entries whose kind, sizes and architecture stand at
fixed places."""
import struct
import sys

MAGIC = struct.pack("<I", 0xBA55ED50)
ELF = 2

data = open(sys.argv[1], "rb").read()
found = set()
at = data.find(MAGIC)
while at >= 0:
    _, _, header, size = struct.unpack_from("<IHHQ", data, at)
    entry, end = at + header, at + header + size
    while 0 < header <= 64 and entry + 32 <= min(end, len(data)):
        kind, _, entry_header, entry_size = struct.unpack_from("<HHIQ", data, entry)
        if kind not in (1, ELF) or not 32 <= entry_header <= 256:
            break
        if kind == ELF:
            found.add(struct.unpack_from("<I", data, entry + 28)[0])
        entry += entry_header + entry_size
    at = data.find(MAGIC, at + 4)
print("device code for", ", ".join(f"sm_{number}" for number in sorted(found)) or "nothing")
missing = sorted({int(number) for number in sys.argv[2:]} - found)
if missing:
    sys.exit("none for " + ", ".join(f"sm_{number}" for number in missing))
