"""The public API is frozen: a change to it requires a deliberate change to this list."""

import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

import rbnn


def test_public_names() -> None:
    assert sorted(rbnn.__all__) == [
        "BinaryConv1d",
        "BinaryConv2d",
        "BinaryConvTranspose2d",
        "BinaryLinear",
        "BinarySchedule",
        "RbnnError",
        "Session",
        "binarize_",
        "create_model",
        "export",
        "export_onnx",
        "load",
        "penalty",
    ]


@pytest.mark.parametrize("name", rbnn.__all__)
def test_every_public_name_is_there_and_says_what_it_is(name: str) -> None:
    assert getattr(rbnn, name).__doc__
    assert name in dir(rbnn)


def fresh(code: str) -> None:
    """In a fresh interpreter."""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]
WRITTEN = sorted({word for page in PAGES for word in re.findall(r"\brbnn((?:\.\w+){2,})", page.read_text("utf-8"))})


def test_the_documents_write_submodules() -> None:
    assert {"functional", "methods", "optim"} <= {name.split(".")[1] for name in WRITTEN}


def test_submodules_are_there_as_the_documents_write_them() -> None:
    fresh(f"import rbnn; from operator import attrgetter; [attrgetter(name[1:])(rbnn) for name in {WRITTEN}]")


def test_the_engine_is_there_without_torch() -> None:
    fresh("import sys; sys.modules['torch'] = None; import rbnn; assert rbnn.runtime.Session is rbnn.Session")


def test_a_submodule_that_needs_torch_says_how_to_get_it() -> None:
    code = "import sys; sys.modules['torch'] = None; import rbnn\ntry: rbnn.optim\nexcept ImportError as e: print(e)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "rbnn.optim needs torch: pip install 'rbnn[train]'\n", done.stderr


def test_annotations_count_for_those_who_check_types() -> None:
    assert files("rbnn").joinpath("py.typed").is_file()


def test_other_names_are_missing_as_usual() -> None:
    with pytest.raises(AttributeError, match="no attribute 'binarise_'"):
        _ = rbnn.binarise_
