"""Faults that are planted on purpose: where they stand, how one is put in, and whether its test sees it."""

import os
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parent.parent
FAULTS = Path(__file__).parent / "plant.d"
LIMIT_S = 300
"""A test that a fault makes hang counts as one that sees it."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One wrong behaviour: `new` in place of the only `old` in `file`, which `test` must see."""

    case: int
    """Its row in docs/failures.md."""
    what: str
    """The behaviour that is broken."""
    file: str
    old: str
    new: str
    test: str

    def planted(self, root: Path) -> str:
        """The file with the fault in it; ValueError unless `old` stands there exactly once and `new` differs."""
        text = (root / self.file).read_text(encoding="utf-8")
        if (found := text.count(self.old)) != 1:
            raise ValueError(f"case {self.case}: its text stands {found} times in {self.file}, expected once")
        if self.new == self.old:
            raise ValueError(f"case {self.case}: nothing would change in {self.file}")
        return text.replace(self.old, self.new)


def faults() -> list[Fault]:
    """All faults, by case."""
    found = [
        Fault(**fault)
        for path in sorted(FAULTS.glob("*.toml"))
        for fault in tomllib.loads(path.read_text(encoding="utf-8"))["fault"]
    ]
    return sorted(found, key=lambda fault: fault.case)


class Copy:
    """A temporary worktree of HEAD with an interpreter that imports forerun from it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._python = root / ".venv" / "bin" / "python"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", root / ".venv"], check=True)
        site = next((root / ".venv").glob("lib/*/site-packages"))
        # Paths only: the .pth files behind them, which would bring the installed forerun, are not followed.
        rest = [path for path in sys.path if path.endswith("site-packages")]
        (site / "copy.pth").write_text("\n".join([str(root / "src"), *rest, ""]))
        self._extension = root / "src" / "forerun" / "native" / f"_ext{sysconfig.get_config_var('EXT_SUFFIX')}"
        self._use_built()

    def _use_built(self) -> None:
        """Take the extension that is installed here."""
        from forerun.native import ext

        built = ext.extension()
        if built is not None:
            self._extension.write_bytes(Path(built.__file__).read_bytes())

    def _compile(self) -> None:
        """Compile csrc/ of the copy; only what changed is compiled anew."""
        build = self.root / "build" / "plant"
        if not (build / "CMakeCache.txt").exists():
            options = [f"-DPython_EXECUTABLE={sys.executable}", "-DCMAKE_BUILD_TYPE=Release"]
            subprocess.run(
                ["cmake", "-G", "Ninja", "-S", "csrc", "-B", build, *options],
                cwd=self.root,
                check=True,
                stdout=subprocess.DEVNULL,
            )
        subprocess.run(["cmake", "--build", build], cwd=self.root, check=True, stdout=subprocess.DEVNULL)
        self._extension.write_bytes(next(build.glob("_ext*.so")).read_bytes())

    def run(self, test: str) -> subprocess.CompletedProcess[str]:
        """Run one test on the copy; exit status 124 where it ran past the limit."""
        command = [self._python, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", test]
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            return subprocess.run(
                command, cwd=self.root, env=environment, capture_output=True, text=True, timeout=LIMIT_S
            )
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(command, 124, "", "")

    def try_fault(self, fault: Fault) -> str:
        """`caught`, or what happened instead."""
        path = self.root / fault.file
        whole, compiled = path.read_text(encoding="utf-8"), fault.file.startswith("csrc/")
        path.write_text(fault.planted(self.root), encoding="utf-8")
        try:
            if compiled:
                self._compile()
            done = self.run(fault.test)
        finally:
            path.write_text(whole, encoding="utf-8")
            if compiled:
                self._use_built()
        # 1: a test failed; 124: it hung; below 0: the process died. Others: pytest could not run the test at all.
        if done.returncode in (1, 124) or done.returncode < 0:
            return "caught"
        return "missed" if done.returncode == 0 else f"not run: {(done.stdout + done.stderr).strip()[-200:]}"


@contextmanager
def copied() -> Iterator[Copy]:
    """A worktree of HEAD that is gone afterwards."""
    with TemporaryDirectory(prefix="forerun-plant-") as folder:
        root = Path(folder) / "copy"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", root], cwd=ROOT, check=True)
        try:
            yield Copy(root)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", root], cwd=ROOT, check=True)
