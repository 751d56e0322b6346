"""Machines as users have them."""

import pytest


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Downloads fail as on a machine without a network, and there is no npm client."""

    def refuse(url: str, timeout: float) -> None:
        raise OSError("no network")

    monkeypatch.setattr("urllib.request.urlopen", refuse)
    monkeypatch.setattr("shutil.which", lambda name: None)
