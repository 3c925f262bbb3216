#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Show what mzCache does: a long conversation whose memory is given back and comes back.
# Usage: scripts/demo.sh [OPTIONS of mzcache demo]. MODEL names another GGUF file, BUILD another
# build folder.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
model=${MODEL:-"$root/models/SmolLM2-135M-Instruct.Q4_1.gguf"}
mzcache=${BUILD:-"$root/build"}/bin/mzcache

if [ ! -x "$mzcache" ]; then
    echo "demo: $mzcache is not built yet; run make" >&2
    exit 1
fi
if [ ! -f "$model" ]; then
    echo "demo: there is no $model; run make models" >&2
    exit 1
fi
exec "$mzcache" demo -m "$model" -f "$root/scripts/demo/lighthouse.txt" "$@"
