# Everything a fresh machine needs: Python >= 3.10 and a C++20 compiler. Each target makes its own virtual environment.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SOURCES := pyproject.toml CMakeLists.txt $(shell find cpp python -type f \( -name '*.py' -o -name '*.?pp' -o -name '*.yaml' -o -name '*.json' -o -name '*.h' \) 2>/dev/null)
CXX_FILES := $(shell find cpp examples bench -type f \( -name '*.cpp' -o -name '*.hpp' -o -name '*.h' -o -name '*.c' \) 2>/dev/null)
CXX_BUILD := build/tests
JOBS ?= 2

.PHONY: run test check bench docs score mutants clean test-python test-cpp lint package

run: .venv-run/.installed  ## price a real deployment
	.venv-run/bin/steppe price --model llama-3.1-70b-instruct-fp8 --hardware h100 --tp 4 --engine cache_dtype=fp8

.venv-run/.installed: $(SOURCES)
	$(PYTHON) -m venv .venv-run
	.venv-run/bin/pip install --quiet --disable-pip-version-check .
	touch $@

$(STAMP): $(SOURCES)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check cmake ninja pybind11 ".[test,plot,calibrate,dask,docs,check]"
	touch $@

test: test-cpp test-python  ## the whole suite

test-python: $(STAMP)
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile

test-cpp: $(STAMP)
	$(BIN)/cmake -S . -B $(CXX_BUILD) -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja -DCMAKE_BUILD_TYPE=Release -DSTEPPE_BUILD_TESTS=ON
	$(BIN)/cmake --build $(CXX_BUILD)
	$(BIN)/ctest --test-dir $(CXX_BUILD) --output-on-failure

check: lint package  ## formatting, types, the docs page, and that what we build installs

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $(CXX_FILES)
	$(BIN)/python -m steppe.docgen --check

package: $(STAMP)  ## wheel and sdist build, and install in a clean environment
	rm -rf build/dist
	$(BIN)/python -m build --quiet --outdir build/dist .
	$(BIN)/python tests/packaging/check_dist.py build/dist
	rm -rf build/clean && $(PYTHON) -m venv build/clean
	build/clean/bin/pip install --quiet --disable-pip-version-check build/dist/*.whl
	cd build && clean/bin/steppe price --model llama-3.1-8b-instruct --hardware h100 --decode 64@2048
	build/clean/bin/pip uninstall --quiet --yes steppe
	build/clean/bin/pip install --quiet --disable-pip-version-check --no-deps build/dist/*.tar.gz
	cd build && clean/bin/python -m steppe --version

bench: $(STAMP)  ## microbenchmarks
	$(BIN)/python bench/run.py

docs: $(STAMP)  ## the documentation site
	$(BIN)/mkdocs build --strict

mutants: $(STAMP)  ## break the laws one by one and see a test fail
	$(BIN)/python tests/mutants/run.py

POINTS ?= ../shared/accuracy/serving_points.csv
score: $(STAMP)  ## figures of docs/research/accuracy.md
	$(BIN)/steppe score $(POINTS) --report docs/research/accuracy_serving.md --plot docs/research/figures

clean:
	rm -rf build .venv .venv-run
