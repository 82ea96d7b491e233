# Thin front of CMake.  make: set-up, build, checklist.  Another compiler: make CC=clang BUILD=build-clang
BUILD ?= build
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
# Handed to the scripts only when somebody chose it: make's own default "cc" is no choice.
ifneq ($(origin CC),default)
export WEFT_CC := $(CC)
endif
export BUILD JOBS

.PHONY: all install build demo test test-long fuzz judges bench bench-check bench-record asan tsan mutants clean
all: build
	@tools/checklist.sh $(BUILD)

build:
	@tools/setup.sh build
	@tools/configure.sh $(BUILD) -DWEFT_TESTS=OFF
	@tools/build.sh $(BUILD) -j $(JOBS)

# Program, libraries, headers, MPI plugins, weft.pc and the CMake package: make install PREFIX=/opt/weft [DESTDIR=/tmp/image]
PREFIX ?= /usr/local
install: build
	@DESTDIR="$(DESTDIR)" cmake --install $(BUILD) --prefix "$(PREFIX)" >/dev/null
	@echo "installed in $(DESTDIR)$(PREFIX)"

demo:
	@tools/setup.sh build demo
	@$(MAKE) --no-print-directory build
	@tools/demo.sh $(BUILD)

# The whole of it: unit and program tests, then the same under sanitizers. Ends with "N passed, N failed".
test:
	@tools/test.sh release asan tsan

test-long:
	@tools/test.sh long

# The readers of files under libFuzzer (clang), FUZZ_SECONDS=600 each.
fuzz:
	@tools/test.sh fuzz

# What Weft reads and writes, judged by Hugging Face's transformers and safetensors: make judges PYTHON=/path/python
judges: build
	@cmake $(BUILD) -DWEFT_TESTS=ON >/dev/null
	@WEFT_PEER_PYTHON="$(PYTHON)" ctest --test-dir $(BUILD) -L judges -V --no-tests=error

# The table of marks (bench/marks.py), in less than ten minutes: make bench [ONLY="fp32 cp"] [WRITE=1: also into
# docs/performance.md] [PYTHON=/path/python: one that has PyTorch, for the rows against it]
PYTHON ?= python3
bench: build
	@WEFT=$(BUILD)/weft WEFT_PEER_PYTHON="$(PYTHON)" \
	  python3 bench/marks.py $(ONLY) $(if $(SAVE),--save "$(SAVE)") $(if $(WRITE),--write docs/performance.md)

# Is any kernel slower than it was? Against the figures in bench/recorded; bench-record replaces this machine's.
bench-check bench-record: build
	@tools/setup.sh bench
	@WEFT=$(BUILD)/weft python3 bench/check.py $(ONLY) $(if $(findstring record,$@),--record)

# One planted fault after the other, with the test that catches it.
mutants:
	@tools/mutants.sh

asan tsan:
	@tools/test.sh $@

clean:
	rm -rf $(BUILD) build-asan build-tsan build-fuzz build-mutants
