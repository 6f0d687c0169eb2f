"""`where()` in each of the places it tells apart."""

import os
import sys
from types import SimpleNamespace

import nbformat
import pytest
from nbclient import NotebookClient

from rove_lab.notebook import where


def test_a_test_runs_in_plain_python(monkeypatch):
    monkeypatch.delenv("ROVE_BOOK_BUILD", raising=False)
    assert where() == "python"


def test_ipykernel_alone_is_not_a_notebook(monkeypatch):
    import ipykernel.kernelapp  # noqa: F401

    monkeypatch.delenv("ROVE_BOOK_BUILD", raising=False)
    assert where() == "python"


def test_the_book_says_so_even_from_a_kernel(monkeypatch):
    monkeypatch.setenv("ROVE_BOOK_BUILD", "1")
    assert where() == "book"


def test_colab_is_told_by_its_own_module(monkeypatch):
    monkeypatch.delenv("ROVE_BOOK_BUILD", raising=False)
    monkeypatch.setitem(sys.modules, "google.colab", SimpleNamespace())
    assert where() == "colab"


@pytest.mark.parametrize(("build", "place"), [("", "jupyter"), ("1", "book")])
def test_a_real_kernel(build, place):
    cell = nbformat.v4.new_code_cell("from rove_lab.notebook import where\nprint(where())")
    notebook = nbformat.v4.new_notebook(cells=[cell])
    client = NotebookClient(notebook, timeout=120, kernel_name="python3")
    client.execute(env=dict(os.environ, ROVE_BOOK_BUILD=build))
    assert notebook.cells[0].outputs[0].text.strip() == place
