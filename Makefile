# Short names for what people do here; each line after a target's ## is what 'make help' prints.
# PRESET picks the build that test and lint use (CMakePresets.json): make test PRESET=relassert
PRESET ?= ci
.DEFAULT_GOAL := help

help: ## list these targets
	@. scripts/minutes && awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile | \
	  sed "s/SETUP min/$$setup min/; s/PROGRAM min/$$program min/; s/EVERYTHING min/$$everything min/; s/TESTS min/$$tests min/"

setup: ## install what building and training need (once: SETUP minutes, 630 MB to download)
	@scripts/setup

build: setup ## build build/release/trireme (first time: PROGRAM minutes)
	@scripts/build release trireme

train: build ## train on Jane Austen with two ranks (4 minutes), resume on one, write a sample
	@scripts/train_austen

train-free-fsdp: build ## train a Free Transformer on Jane Austen with two sharded ranks (3 minutes)
	@examples/train_free/austen free

train-baseline-fsdp: build ## train the same decoder without a latent, and compare (3 minutes)
	@examples/train_free/austen baseline

test: ## build everything (first time: EVERYTHING minutes), run every quick test and a sample of each campaign (TESTS minutes)
	@scripts/setup --dev --parquet $(if $(filter relassert tsan,$(PRESET)),--fuzz)
	@scripts/setup --judges & scripts/build $(PRESET); built=$$?; wait $$! && exit $$built
	@scripts/run_tests $(PRESET)

test-slow: ## run the campaigns in full, then every quick test under each sanitizer (hours)
	@scripts/setup --judges --dev --fuzz
	@scripts/build release && scripts/run_tests slow && scripts/run_tests alone
	@scripts/build relassert && scripts/run_tests relassert
	@scripts/build tsan && scripts/run_tests tsan

fuzz: ## feed every parser broken files, TRIREME_FUZZ_SECONDS each (default 600; two at a time, half an hour and more)
	@scripts/setup --fuzz
	@cmake --preset fuzz >/dev/null && cmake --build build/fuzz
	@ctest --preset fuzz

bench: ## compare with PyTorch on this machine, same model, batch and precision, then draw cost curves (30 minutes)
	@scripts/setup --bench
	@scripts/build release trireme
	@mkdir -p out/bench
	@.venv/bin/python benchmarks/vs_pytorch/run --all --json out/bench/vs_pytorch.json
	@.venv/bin/python benchmarks/curves/run --json out/bench/curves.json --pictures out/bench

docs: build ## write docs/settings.md and docs/dialects.md from their one declaration
	@build/release/trireme explain settings --markdown > build/settings.md
	@mv build/settings.md docs/settings.md
	@build/release/trireme explain settings --dialects > build/dialects.md
	@mv build/dialects.md docs/dialects.md

site: ## make a searchable site of docs/ in build/site, to be opened without a server (20 s)
	@scripts/setup --docs
	@scripts/site/build build/site

format: ## rewrite our C++ files with clang-format-19
	@scripts/setup --dev
	@scripts/format --write

lint: ## check formatting, then clang-tidy-19 on the files that changed since their last clean run
	@scripts/setup --dev
	@scripts/format --check
	@scripts/build release trireme_pch
	@scripts/lint build/release

install: build ## install under PREFIX (default /usr/local), for find_package(Trireme)
	@cmake --build build/release
	@cmake --install build/release --prefix "$(or $(PREFIX),/usr/local)"

clean: ## remove what was built; .venv, data and out stay
	@rm -rf build

.PHONY: help setup build train train-free-fsdp train-baseline-fsdp test test-slow fuzz bench docs site format lint install clean
