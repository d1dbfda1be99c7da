# make run        a real model answers, faster with the same text
# make test       lint, types, import rules and the smoke grid of tests
# make test-full  the whole grid
PYTHON ?= python3
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: run test test-full clean

run: .venv/ready
	.venv/bin/forerun demo

test: .venv/ready-dev
	scripts/check
	scripts/test

test-full: .venv/ready-dev
	scripts/check
	scripts/test --full

NATIVE := $(wildcard csrc/CMakeLists.txt csrc/*.cpp csrc/*.h csrc/isa/*.cpp csrc/isa/*.h)

.venv/ready: requirements.txt pyproject.toml $(NATIVE)
	scripts/venv $(PYTHON) requirements.txt
	touch $@

.venv/ready-dev: requirements-dev.txt requirements.txt pyproject.toml $(NATIVE)
	scripts/venv $(PYTHON) requirements-dev.txt
	touch $@ .venv/ready

clean:
	rm -rf .venv build dist
