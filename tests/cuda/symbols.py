#!/usr/bin/env python3
"""Every symbol that a library needs of CUDA, cuBLASLt and NCCL is there under the same version, in the
fakes as in the real libraries, and none of theirs is missing that the linker would have resolved
elsewhere. Arguments: the library, "--", the fakes, "--", the real ones."""
import re
import subprocess
import sys


def symbols(flag, path):
    output = subprocess.run(["nm", "-D", flag, path], check=True, capture_output=True, text=True)
    names = set()
    for line in output.stdout.splitlines():
        name = line.split()[-1]
        # A default version is told with two signs where it is defined and with one where it is used.
        names.add(name.replace("@@", "@"))
    return names


groups = [[]]
for argument in sys.argv[1:]:
    if argument == "--":
        groups.append([])
    else:
        groups[-1].append(argument)
(library,), fakes, real = groups
needed = {s for s in symbols("-u", library) if re.match(r"_?_?(cuda|cublas|nccl)", s, re.IGNORECASE)}
if len(needed) < 50:
    sys.exit(f"{library} needs only {len(needed)} symbols of CUDA, cuBLASLt and NCCL: is that the CUDA leaf?")
failed = False
for name, paths in (("fakes", fakes), ("real libraries", real)):
    offered = set().union(*(symbols("--defined-only", path) for path in paths))
    missing = sorted(needed - offered)
    print(f"{len(needed)} symbols, {len(missing)} not in the {name}")
    for symbol in missing:
        print(f"  {symbol}")
    failed |= bool(missing)
sys.exit(failed)
