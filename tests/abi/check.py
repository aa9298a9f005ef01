#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check.py SYMBOLS LIBRARY SIZES: does the library still promise what it promised? Prints TAP.

SYMBOLS has a line for each exported function, with its version, and for each struct and member, as the
program SIZES prints them. Functions may be added to it, and members at the end of a struct, but what is
there must stay: so change it by hand, after thinking.
"""
import subprocess
import sys

promised = set(line for line in open(sys.argv[1]).read().splitlines() if line and not line.startswith('#'))
nm = subprocess.run(['nm', '-D', '--defined-only', '--with-symbol-versions', sys.argv[2]],
                    capture_output=True, text=True, check=True).stdout
exported = {line.split()[2] for line in nm.splitlines() if line.split()[1] != 'A'}
sizes = set(subprocess.run([sys.argv[3]], capture_output=True, text=True, check=True).stdout.splitlines())

checks = [
    ('exported names are those that are promised', exported, {p for p in promised if not p.startswith('struct ')}),
    ('structs are laid out as promised', sizes, {p for p in promised if p.startswith('struct ')}),
]
failed = False
print(f'1..{len(checks)}')
for n, (name, found, wanted) in enumerate(checks, 1):
    ok = found == wanted and bool(wanted)
    failed |= not ok
    print(f'{"ok" if ok else "not ok"} {n} - {name}')
    for line in sorted(found - wanted):
        print('# new: ' + line)
    for line in sorted(wanted - found):
        print('# gone: ' + line)
sys.exit(failed)
