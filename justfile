python := ".venv/bin/python"

# list the recipes
default:
    @just --list

# make .venv with kinetop and its tools
setup:
    python3.11 -m venv .venv
    .venv/bin/pip install -q -U pip
    .venv/bin/pip install -q -e . --group dev -c constraints-ci.txt

# open a trace: just run PATH
run *args:
    {{python}} -m kinetop {{args}}

# show the demo
demo:
    {{python}} -m kinetop demo

# run the tests
test *args:
    {{python}} -m pytest {{args}}

# check style and layers
lint:
    .venv/bin/ruff check
    PYTHONPATH=src .venv/bin/lint-imports

# check types
types:
    .venv/bin/mypy

# run lint, types and tests
check: lint types test

# measure on TRACE and rewrite docs/performance.md; PEERS is a Python with HolisticTraceAnalysis and pysimdjson (long)
bench trace peers="":
    {{python}} bench/bench_import.py {{quote(trace)}} {{ if peers == "" { "" } else { "--peers " + quote(peers) } }}
    {{python}} bench/bench_analyses.py
    {{python}} bench/bench_tui.py
    {{python}} bench/report.py

# write the pages of docs/ that come from the code
docs:
    {{python}} docs/build.py

# draw the views as text and SVG into shots/
shots *args:
    {{python}} bench/shots.py {{args}}

# build the wheel and the sdist
build:
    {{python}} -m build
