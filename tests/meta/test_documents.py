"""What the pages show is what the code answers."""

import doctest
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


PAGES = (
    "collectives.md", "derivatives.md", "failures.md", "optimizing.md", "scenario.md",
    "smooth-and-sharded.md", "symmetry.md", "topologies.md",
)  # fmt: skip


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_of_a_page_give_what_it_shows(page):
    failed, tried = doctest.testfile(
        str(DOCS / page), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE
    )
    assert tried > 5
    assert failed == 0
