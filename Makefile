# One line each; the logic lives in xtask and in the tests.
SHELL := /bin/bash
.DELETE_ON_ERROR:
.PHONY: help setup demo dist test check peers interop interop-smoke takeover vm matrix bench fuzz gen clean

help:           ; @echo "make demo | dist | test | check | peers | interop | interop-smoke | takeover | vm | matrix | bench | fuzz | gen"
setup:          ; @.ci/setup
demo: setup     ; @cargo run --package xtask --no-default-features -- demo
dist: setup     ; @cargo xtask dist
test: setup     ; @cargo run --quiet --package xtask -- test
check: setup    ; @cargo fmt --all --check && cargo xtask tidy && cargo clippy --workspace --all-targets --all-features -- -D warnings
peers: setup    ; @.ci/setup go && cargo xtask peers
interop: peers  ; @.ci/setup interop && cargo xtask interop
interop-smoke: setup ; @.ci/setup go && cargo xtask peers smoke && cargo xtask interop smoke
takeover: setup ; @cargo xtask takeover $(FROM)
vm: setup       ; @.ci/setup vm && cargo xtask vm
matrix: peers   ; @cargo xtask matrix $(if $(ALL),all)
bench: setup    ; @cargo xtask bench $(WHAT)
fuzz: setup     ; @.ci/setup fuzz && cargo xtask fuzz $(WHAT) $(SECONDS) $(if $(JOBS),-j$(JOBS))
gen: setup      ; @cargo xtask gen proto && cargo xtask gen kinds
clean:          ; @cargo clean
