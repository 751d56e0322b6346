"""Every notebook in notebooks/ runs from top to bottom at small size, and its file is small."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
LARGEST = 200_000
RUN = """
import sys, nbformat, nbclient
notebook = nbformat.read(sys.argv[1], 4)
nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
nbformat.write(notebook, sys.argv[2])
"""


def test_they_are_found() -> None:
    assert {path.stem for path in NOTEBOOKS} == {"compare-methods", "train-and-look-inside", "your-own-cnn"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_small_and_whole(path: Path) -> None:
    """It has outputs of a run without errors, and nothing in it identifies the machine that ran it."""
    import nbformat

    assert path.stat().st_size < LARGEST
    notebook = nbformat.read(path, 4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    kinds = {output.output_type for cell in code for output in cell.outputs}
    assert "error" not in kinds
    assert all(output.get("name") != "stderr" for cell in code for output in cell.outputs)
    assert "/root" not in path.read_text("utf-8")


@pytest.mark.skipif(not (find_spec("nbclient") and find_spec("ipykernel")), reason="needs nbclient and ipykernel")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(path: Path, tmp_path: Path) -> None:
    """In a separate process, in which only our own warnings are errors."""
    import nbformat

    environment = os.environ | {
        "RBNN_NOTEBOOK_EPOCHS": "1", "OMP_NUM_THREADS": "1", "IPYTHONDIR": str(tmp_path), "TMPDIR": str(tmp_path),
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", RUN, path, tmp_path / "done.ipynb"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    cells = nbformat.read(tmp_path / "done.ipynb", 4).cells
    shown = "".join(str(cell.get("outputs", "")) for cell in cells)
    assert "text/html" in shown
    assert "% " in shown
