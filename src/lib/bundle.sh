#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bundle.sh OUTPUT OBJCOPY AR API.a INTERNAL.a COMPILER...: libsallyport.a in one piece.
#
# One object holds the library and what it uses of the rest. Names that are hidden in the shared
# library become local to that object, so that they cannot meet names of a program's own.
set -eu
output=$1 objcopy=$2 ar=$3 api=$4 internal=$5
shift 5
object=${output%.a}.o
"$@" -r -nostdlib -o "$object" -Wl,--whole-archive "$api" -Wl,--no-whole-archive "$internal"
"$objcopy" --localize-hidden "$object"
rm -f "$output"
"$ar" rcs "$output" "$object"
rm -f "$object"
