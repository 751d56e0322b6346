"""Copies of a run without some of its files, or with other options."""

import re
import shutil
from pathlib import Path


def without(run: Path, place: Path, *names: str) -> Path:
    """A copy of a run that lacks some files."""
    copy = Path(shutil.copytree(run, place / "copy"))
    for name in names:
        (copy / name).unlink()
    return copy


def set_options(run: Path, *lines: str) -> None:
    """Change options of a run, which records all of them."""
    config = (run / "config.toml").read_text()
    for line in lines:
        name = line.partition(" = ")[0]
        config, changed = re.subn(rf"^{name} = .*$", line, config, flags=re.MULTILINE)
        assert changed == 1
    (run / "config.toml").write_text(config)
