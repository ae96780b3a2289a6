"""Every command of README.md and docs, exactly as printed, and every Python block, from the project's folder."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SET_UP = ("make ", "source ")
EXIT_CODE = re.compile(r"# exit code (\d+)$")


def blocks(language: str) -> list[str]:
    pages = "\n".join(page.read_text("utf-8") for page in PAGES)
    return re.findall(rf"^```{language}\n(.*?)^```$", pages, flags=re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    lines = [line[2:] for block in blocks("console") for line in block.splitlines() if line.startswith("$ ")]
    return list(dict.fromkeys(line for line in lines if not line.startswith(SET_UP)))


def in_shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with the project's examples, so that a command's output folder does not land in the checkout."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    return tmp_path


@pytest.mark.parametrize("command", commands())
def test_command(command: str, project: Path):
    expected = EXIT_CODE.search(command)
    ran = in_shell(command, project)
    assert ran.returncode == (int(expected[1]) if expected else 0), ran.stderr
    assert ran.stdout or ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("code", blocks("python"))
def test_python(code: str, project: Path):
    ran = in_shell(f"python - <<'END'\n{code}\nEND", project)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout
