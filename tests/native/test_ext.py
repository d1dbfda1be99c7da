"""Finding the extension, choosing the instruction set, counting cores."""

import os
import subprocess
import sys

import pytest

from forerun.core.errors import SpecError
from forerun.native import ext

NAMES = ["amx", "avx512_bf16", "avx512", "avx2", "portable", "amx_emulated"]
needs_extension = pytest.mark.skipif(ext.extension() is None, reason=ext.why_not())


@pytest.fixture
def fresh():
    """What is remembered of the extension, forgotten before and after."""
    ext._load.cache_clear()
    yield
    ext._load.cache_clear()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ModuleNotFoundError("No module", name="forerun.native._ext"), "not compiled when forerun was installed"),
        (ModuleNotFoundError("No module named 'x'", name="x"), "does not load: No module named 'x'"),
        (ImportError("GLIBC_9.9 not found"), "does not load: GLIBC_9.9 not found"),
    ],
)
def test_without_an_extension_it_says_why(fresh, monkeypatch, error, said):
    def no(name):
        raise error

    monkeypatch.setattr(ext, "import_module", no)
    assert ext.extension() is None
    assert said in ext.why_not()
    for ask in (ext.choose_isa, lambda: ext.set_threads(None), lambda: ext.Program):
        with pytest.raises(SpecError, match="torch runtime"):
            ask()
    assert not hasattr(ext, "__wrapped__")


@needs_extension
def test_every_instruction_set_runs_or_says_why_not():
    found = ext.isas()
    assert list(found) == NAMES
    assert found["portable"] == ""
    assert found["amx_emulated"] == "for tests only"
    flags = set()
    if sys.platform == "linux":
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            flags = next((set(line.split()) for line in file if line.startswith("flags")), set())
    for name, flag in (("amx", "amx_tile"), ("avx512_bf16", "avx512_bf16"), ("avx512", "avx512bw"), ("avx2", "avx2")):
        if flags and flag not in flags:
            assert found[name].startswith("the processor lacks"), name
        assert ext.isa_runs(name) == (found[name] == "")
    assert not ext.isa_runs("mmx")


@needs_extension
def test_the_best_is_chosen_and_the_environment_lowers_it(monkeypatch):
    monkeypatch.delenv("FORERUN_ISA", raising=False)
    runs = [name for name, reason in ext.isas().items() if not reason]
    assert ext.choose_isa()[0] == ext.isa() == runs[0]
    for name in runs:
        monkeypatch.setenv("FORERUN_ISA", name)
        assert ext.choose_isa()[0] == name
        assert "FORERUN_ISA" in ext.choose_isa()[1]


@needs_extension
def test_what_does_not_run_cannot_be_asked_for(monkeypatch):
    runs = [name for name, reason in ext.isas().items() if not reason]
    for name in NAMES[:-1]:
        if name not in runs:
            monkeypatch.setenv("FORERUN_ISA", name)
            with pytest.raises(SpecError, match=f"FORERUN_ISA={name}.*{ext.isas()[name]}.*{', '.join(runs)}"):
                ext.choose_isa()
    monkeypatch.setenv("FORERUN_ISA", "avx2000")
    with pytest.raises(SpecError, match=r"unknown instruction set in FORERUN_ISA 'avx2000'.*portable"):
        ext.choose_isa()
    monkeypatch.setenv("FORERUN_ISA", "amx_emulated")
    if ext.isa_runs("amx_emulated"):
        assert ext.choose_isa()[0] == "amx_emulated"
    else:
        with pytest.raises(SpecError, match="avx512_bf16"):
            ext.choose_isa()


GROUPS = {
    "none": ("0::/\n", {}, float("inf")),
    "no limit": ("0::/a\n", {"a/cpu.max": "max 100000"}, float("inf")),
    "its own": ("0::/a/b\n", {"a/b/cpu.max": "150000 100000"}, 1.5),
    "an ancestor's is less": ("0::/a/b\n", {"a/b/cpu.max": "900000 100000", "a/cpu.max": "50000 100000"}, 0.5),
    "the host's path": ("0::/docker/0123\n", {"cpu.max": "300000 100000"}, 3.0),
    "climbing out": ("0::/../../x\n", {"cpu.max": "200000 100000"}, 2.0),
    "nonsense": ("0::/a\n", {"a/cpu.max": "many 100000"}, float("inf")),
    "no period": ("0::/a\n", {"a/cpu.max": "100000 0"}, float("inf")),
    "not a list": ("hello\n:\n\n", {}, float("inf")),
    "first generation": (
        "4:cpuset:/a\n3:cpu,cpuacct:/a\n",
        {"cpu,cpuacct/a/cpu.cfs_quota_us": "250000", "cpu,cpuacct/a/cpu.cfs_period_us": "100000"},
        2.5,
    ),
    "first generation, no limit": (
        "3:cpu:/\n",
        {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"},
        float("inf"),
    ),
    "both": (
        "3:cpu,cpuacct:/a\n0::/a\n",
        {
            "cpu/cpu.cfs_quota_us": "400000",
            "cpu/cpu.cfs_period_us": "100000",
            "unified/a/cpu.max": "max 100000",
        },
        4.0,
    ),
}


@needs_extension
@pytest.mark.parametrize("case", GROUPS)
def test_the_quota_of_control_groups(tmp_path, case):
    groups, files, wanted = GROUPS[case]
    (tmp_path / "cgroup").write_text(groups)
    for name, text in files.items():
        file = tmp_path / "fs" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
    assert ext.cpu_quota(str(tmp_path / "cgroup"), str(tmp_path / "fs")) == wanted


@needs_extension
def test_no_control_groups_is_no_limit(tmp_path):
    assert ext.cpu_quota(str(tmp_path / "none"), str(tmp_path)) == float("inf")


@needs_extension
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity on this system")
def test_cores_are_those_of_the_affinity():
    assert 1 <= ext.cores() <= len(os.sched_getaffinity(0))
    code = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); from forerun.native import ext; "
    done = subprocess.run([sys.executable, "-c", code + "print(ext.cores())"], capture_output=True, text=True)
    assert done.stdout == "1\n", done.stderr


@needs_extension
def test_threads_are_set_and_too_many_warn():
    before = ext.threads()
    try:
        ext.set_threads(1)
        assert ext.threads() == 1
        ext.set_threads(None)
        assert ext.threads() == ext.cores()
        with pytest.warns(RuntimeWarning, match=f"{ext.cores() + 1} threads on {ext.cores()} usable core"):
            ext.set_threads(ext.cores() + 1)
        assert ext.threads() == ext.cores() + 1
    finally:
        ext.extension().set_threads(before)


@needs_extension
@pytest.mark.parametrize("count", [0, -1, 1.5, "2", 1025])
def test_no_number_of_threads(count):
    with pytest.raises(SpecError, match="whole number from 1 to 1024, got"):
        ext.set_threads(count)


@needs_extension
def test_kernels_are_compared_with_the_portable_ones_before_they_are_used():
    module = ext.extension()
    for name in module.isas():
        if module.isa_runs(name):
            assert module.disagreement(name) == ""
    with pytest.raises(ValueError, match="does not run here"):
        module.disagreement("mmx")
