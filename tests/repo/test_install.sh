#!/usr/bin/env bash
# The library as its users get it: installed into a folder of its own, then every example built against it, with
# pkg-config and with CMake, and run; those for a caller's communicator with each MPI, on several ranks. The
# installed program finds its plugins, also after the installation was moved.
# labels: small mpi noasan
# timeout: 300
set -uo pipefail
: "${WEFT_SRC:?run through ctest}" "${WEFT_BUILD:?run through ctest}"
tmp=$(mktemp -d); trap 'rm -rf "$tmp"' EXIT
unset WEFT_PLUGIN_PATH
bad=0
fail() { echo "FAILED: $*"; bad=1; }

DESTDIR=$tmp/image cmake --install "$WEFT_BUILD" --prefix /opt/first >"$tmp/log" 2>&1 || { cat "$tmp/log"; exit 1; }
mkdir "$tmp/moved" && mv "$tmp/image/opt/first" "$tmp/moved/weft" || exit 1
root=$tmp/moved/weft
lib=$(dirname "$(find "$root" -name libweft.so)")
export PKG_CONFIG_PATH=$lib/pkgconfig LD_LIBRARY_PATH=$lib
for part in bin/weft include/weft/attention.h include/weft/mpi.h; do [ -e "$root/$part" ] || fail "no $part"; done
[ "$(pkg-config --modversion weft)" = "$("$root/bin/weft" --version | cut -d' ' -f2)" ] ||
  fail "weft.pc: version $(pkg-config --modversion weft)"

# check NAME COMMAND...: exit 0 and a last line; the output is kept for the report.
check() {
  local name=$1; shift
  timeout 120 "$@" >"$tmp/out" 2>&1 </dev/null || { fail "$name: exit $?"; tail -5 "$tmp/out"; }
}

# ---- pkg-config -------------------------------------------------------------------------------------------------
read -ra flags <<<"$(pkg-config --cflags --libs weft)"
for name in attention train; do
  cc -std=c11 -o "$tmp/$name" "$WEFT_SRC/examples/$name.c" "${flags[@]}" -lm ||
    fail "$name.c against the installed library"
done
check attention "$tmp/attention"
check train "$tmp/train" "$WEFT_SRC/docs/user/formats.md"

mpis=()
for mpi in openmpi mpich; do
  [ -e "$lib/weft/libweft_mpi_$mpi.so" ] && command -v "mpicc.$mpi" >/dev/null && command -v "mpirun.$mpi" >/dev/null &&
    mpis+=("$mpi")
done
[ ${#mpis[@]} -gt 0 ] || [ -z "$(ls "$WEFT_BUILD"/libweft_mpi_*.so 2>/dev/null)" ] ||
  fail "plugins were built, and none is installed"
for mpi in "${mpis[@]}"; do
  read -ra flags <<<"$(pkg-config --cflags --libs weft-mpi)"
  for name in attention_mpi pcp_layer dcp_layer; do
    "mpicc.$mpi" -std=c11 -I "$WEFT_SRC/examples" -o "$tmp/$name.$mpi" "$WEFT_SRC/examples/$name.c" "${flags[@]}" -lm ||
      fail "$name.c with $mpi"
  done
  check "attention_mpi, $mpi" "mpirun.$mpi" -n 3 "$tmp/attention_mpi.$mpi"
  check "pcp_layer, $mpi" "mpirun.$mpi" -n 3 "$tmp/pcp_layer.$mpi"
  check "dcp_layer, $mpi" "mpirun.$mpi" -n 4 "$tmp/dcp_layer.$mpi"
  grep -q 'heads U=2' "$tmp/out" || fail "dcp_layer, $mpi: no head groups: $(cat "$tmp/out")"
  check "the installed program, $mpi" "mpirun.$mpi" -n 2 "$root/bin/weft" attention \
    "$WEFT_GOLDEN/attention/causal_s128.safetensors" --cp 2
done

# ---- CMake --------------------------------------------------------------------------------------------------------
mkdir "$tmp/project"
cat >"$tmp/project/CMakeLists.txt" <<'C'
cmake_minimum_required(VERSION 3.20)
project(user C)
find_package(Weft 0.1 REQUIRED)
add_executable(attention ${EXAMPLES}/attention.c)
target_link_libraries(attention Weft::weft m)
if(MPI_C_COMPILER)
  find_package(MPI REQUIRED COMPONENTS C)
  foreach(name attention_mpi pcp_layer dcp_layer)
    add_executable(${name} ${EXAMPLES}/${name}.c)
    target_link_libraries(${name} Weft::weft MPI::MPI_C m)
  endforeach()
endif()
C
for mpi in none "${mpis[@]:0:1}"; do # of the caller's MPI the package knows nothing: one is enough
  with=()
  [ "$mpi" = none ] || with=("-DMPI_C_COMPILER=$(command -v "mpicc.$mpi")" \
    "-DMPIEXEC_EXECUTABLE=$(command -v "mpirun.$mpi")")
  if ! cmake -S "$tmp/project" -B "$tmp/cmake-$mpi" -DCMAKE_PREFIX_PATH="$root" -DEXAMPLES="$WEFT_SRC/examples" \
    "${with[@]}" >"$tmp/log" 2>&1 ||
    ! cmake --build "$tmp/cmake-$mpi" >>"$tmp/log" 2>&1; then
    fail "a CMake project, MPI $mpi"; tail -5 "$tmp/log"; continue
  fi
  if [ "$mpi" = none ]; then check "attention by CMake" "$tmp/cmake-none/attention"; continue; fi
  for name in attention_mpi pcp_layer dcp_layer; do
    check "$name by CMake, $mpi" "mpirun.$mpi" -n 2 "$tmp/cmake-$mpi/$name"
  done
done
exit $bad
