#!/usr/bin/env bash
# checklist.sh FOLDER — what the build found and what this machine can run, one line each.
set -u
cd "$(dirname "$0")/.."
cache=$1/CMakeCache.txt

cached() { sed -n "s/^$1:[^=]*=//p" "$cache" | head -n 1; }
line() { printf '  %s %-10s %s\n' "$1" "$2" "$3"; }
yes() { line ✓ "$1" "$2"; }
no() { line ✗ "$1" "$2"; }

compiler=$(cached CMAKE_C_COMPILER)
yes compiler "$("$compiler" --version | head -n 1)"
version=$(echo '#include <oneapi/dnnl/dnnl_version.h>
v DNNL_VERSION_MAJOR.DNNL_VERSION_MINOR.DNNL_VERSION_PATCH' |
  "$compiler" -I "$(cached DNNL_INCLUDE_DIR)" -E -P -x c - 2>/dev/null | sed -n 's/^v //p' | tr -d ' ')
yes oneDNN "${version:-found}"
yes jansson "$(pkg-config --modversion jansson 2>/dev/null)"
yes libfyaml "$(pkg-config --modversion libfyaml 2>/dev/null)"
yes xxHash "$(pkg-config --modversion libxxhash 2>/dev/null)"
if [ "$(cached WEFT_OPENMP)" = ON ]; then yes OpenMP "$(cached OpenMP_C_FLAGS)"
else no OpenMP "switched off: one thread per rank"; fi

plugins=$(cd "$1" && ls libweft_mpi_*.so 2>/dev/null | tr '\n' ' ')
if [ -n "$plugins" ]; then yes MPI "$plugins"
else no MPI "no plugin (ranks are local processes); for mpirun install libopenmpi-dev or libmpich-dev, then make"; fi

flags=" $(grep -m 1 '^flags' /proc/cpuinfo 2>/dev/null) "
has() { for f in "$@"; do [[ $flags == *" $f "* ]] || return 1; done; }
isa() {
  local name=$1
  shift
  if has "$@"; then yes "$name" "this machine runs it"; else no "$name" "not on this machine"; fi
}
isa avx2 avx2 fma f16c
isa avx512 avx512f avx512bw avx512dq avx512vl
isa amx amx_tile amx_bf16
if [ -x "$1/weft" ]; then yes program "$1/weft"; else no program "$1/weft was not built"; fi
