"""Where `rbnn eval` and `rbnn export` look for test images."""

import json
from pathlib import Path

import pytest
from answers import Rbnn


def test_a_run_remembers_the_directory_of_its_data(
    place: Path, rbnn: Rbnn, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packed files do not, and neither does a run whose directory is gone."""
    run, packed = place / "run", place / "run.rbnn"
    budget = "--epochs", "1", "--batch-size", "4", "--workers", "0"
    where = "--data", "image-folder", "--data-dir", place, "--image-size", "16"
    assert rbnn("train", *where, *budget, "--out", run).code == 0
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))

    found = rbnn("eval", run, "--json")
    assert (found.code, found.err) == (0, "")
    assert found.out == rbnn("eval", run, "--data-dir", place, "--json").out
    exported = rbnn("export", run, "-o", packed, "--json")
    assert (exported.code, exported.err, json.loads(exported.out)["pictures"]) == (0, "", "test")

    for words in ((packed, "--data", "image-folder"), (run, "--data", "cifar10")):
        missing = rbnn("eval", *words)
        assert (missing.code, missing.out) == (2, "")
        assert missing.err.endswith("; if the files are elsewhere, add --data-dir DIR\n")
    (place / "image-folder").rename(place / "moved")
    (run / "config.toml").unlink()  # the checkpoint records it, too
    for words in (("eval", run), ("export", run, "-o", packed)):
        missing = rbnn(*words)
        assert f"no test images in {place}" in missing.err
        assert missing.err.endswith("; if the files are elsewhere, add --data-dir DIR\n")
    assert missing.code == 0
    assert missing.err.startswith("comparing on random images: ")
    named = rbnn("eval", run, "--data-dir", place)
    assert named.err == f"rbnn: no test images in {place}: expected val or test/<class>/*.jpg\n"
