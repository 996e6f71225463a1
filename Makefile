# Everything runs from a fresh clone: the first target that needs the virtual environment creates it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PACKAGE := $(VENV)/.package
# Modules are compiled when they are first imported: compiling all of them takes longer than installing them.
INSTALL := $(BIN)/python -m pip install -qq --no-compile --constraint constraints.txt

.PHONY: demo test fuzz lint bench docs tables models clean

$(PACKAGE): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --editable .
	touch $@

$(STAMP): $(PACKAGE)
	$(INSTALL) --editable '.[dev]'
	touch $@

demo: $(PACKAGE)  ## train on scikit-learn's digits, score, draw a sheet of samples
	rm -rf runs/demo
	$(BIN)/darn train digits-ours --out runs/demo
	$(BIN)/darn eval runs/demo --baselines
	$(BIN)/darn sample runs/demo -n 100 --seed 1 --out runs/demo/samples.png

test: $(STAMP)  ## the whole suite; DARN_DATA names the folder of the paper's data, if you have it
	$(BIN)/python -m pytest

# make fuzz FUZZ="--models 100 --only models" for less of it
fuzz: $(STAMP)  ## damaged and forged files by the thousand, kills and races; a table, and results/fuzz/fuzz.json
	PYTHONPATH=tests $(BIN)/python -W ignore -m fuzz $(FUZZ)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright

bench: $(STAMP)  ## one JSON file and one table, each figure beside an ordinary implementation
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.codec coders
	$(BIN)/python -m benchmarks.codec sizes

tables: $(STAMP)  ## the tables of the README and the results page, from results/
	$(BIN)/python docs/tables.py

docs: $(STAMP)  ## the documentation, into site/index.html
	$(INSTALL) --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

models: $(STAMP)  ## the list of checksums of results/models, which downloads are checked against
	$(BIN)/python -m darn.runs.pretrained

clean:
	rm -rf $(VENV) runs site
