"""Simulated machines of users."""

import pytest


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Downloads fail, as on a machine without network access."""

    def refuse(url: str, timeout: float) -> None:
        raise OSError("no network")

    monkeypatch.setattr("urllib.request.urlopen", refuse)
