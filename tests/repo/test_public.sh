#!/usr/bin/env bash
# What users of the library get: headers that compile alone as C11 and C++11, a shared library that exports
# what the headers declare and nothing else, and examples that run on it and agree with themselves.
set -euo pipefail
tmp=$(mktemp -d); trap 'rm -rf "$tmp"' EXIT
cd "$WEFT_SRC"

# alone FLAGS...: one.c as C and as C++.
alone() {
  cc -std=c11 -Wall -Wextra -Wpedantic -Werror -Iinclude "$@" -c "$tmp/one.c" -o "$tmp/one.o"
  if command -v c++ >/dev/null; then
    c++ -x c++ -std=c++11 -Wall -Wextra -Wpedantic -Werror -Iinclude "$@" -c "$tmp/one.c" -o "$tmp/one.o"
  fi
}

for header in include/weft/*.h; do
  echo "#include <weft/$(basename "$header")>" >"$tmp/one.c"
  if [ "$header" = include/weft/mpi.h ]; then
    alone -DWEFT_MPI_HANDLES_ONLY
    for mpi in openmpi mpich; do
      command -v "mpicc.$mpi" >/dev/null || continue
      mapfile -t flags < <("mpicc.$mpi" -show | tr ' ' '\n' | sed -n 's/^-I/-isystem/p')
      alone -DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX "${flags[@]}"
    done
  else
    alone
  fi
  if grep -nE '#include "(base|tensor|kern|comm|mesh|data|shard|cp|model|optim|ckpt|metrics|train)/' "$header"; then
    echo "$header includes a header that is not public"; exit 1
  fi
done

# Every function that is declared WEFT_API is exported, and every export is declared.
cat include/weft/*.h | tr '\n' ' ' | sed 's/;/;\n/g' | grep -oE 'WEFT_API [^;]*' | grep -oE 'weft_[a-z0-9_]+ *\(' |
  tr -d ' (' |
  sort -u >"$tmp/declared"
nm -D --defined-only "$WEFT_BUILD/libweft.so" | awk '$2 ~ /[TDBR]/ {print $3}' | grep -v '^_' | sort -u >"$tmp/exported"
[ "$(wc -l <"$tmp/declared")" -ge 20 ] || { echo "found only $(wc -l <"$tmp/declared") declarations"; exit 1; }
diff "$tmp/declared" "$tmp/exported" || { echo "declared (<) and exported (>) functions differ"; exit 1; }

"$WEFT_BUILD/example_attention" | tee "$tmp/out"
grep -q 'the same attention' "$tmp/out"
"$WEFT_BUILD/example_train" docs/user/formats.md | tee "$tmp/out"
grep -q 'the same training' "$tmp/out"
