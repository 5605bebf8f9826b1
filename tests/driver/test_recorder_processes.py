"""The recorder over forks, spawned processes, and a runtime's life: the slower half."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from baker.inside.events import read


def _kinds(lines: list[dict[str, Any]]) -> list[str]:
    return [line["e"] for line in lines]


def test_counters_at_change_and_at_the_end(run: Any) -> None:
    code = """
        import time
        from torch._dynamo.utils import counters
        counters["inductor"]["fxgraph_cache_miss"] += 1
        time.sleep(0.4)
        time.sleep(0.4)
        counters["aot_autograd"]["autograd_cache_hit"] += 2
        print(sorted(counters))
    """
    out, files = run(code)
    (lines,) = files.values()
    assert out == "['aot_autograd', 'inductor']\n"
    assert [line for line in lines if line["e"] == "counters"] == [
        {"inductor": {"fxgraph_cache_miss": 1}, "e": "counters", "t": lines[2]["t"]},
        {"inductor": {"fxgraph_cache_miss": 1}, "aot_autograd": {"autograd_cache_hit": 2}, "e": "counters", "t": lines[3]["t"]},
    ]


def test_fork_gets_its_own_file_and_inherits_a_base(run: Any) -> None:
    code = """
        import os, sys, time, warnings
        warnings.simplefilter("error")
        from torch._dynamo.utils import counters
        counters["inductor"]["fxgraph_cache_miss"] += 2
        time.sleep(0.4)
        pid = os.fork()
        if pid == 0:
            counters["inductor"]["fxgraph_cache_miss"] += 1
            time.sleep(0.4)
            sys.exit()
        os.waitpid(pid, 0)
        counters["inductor"]["fxgraph_cache_miss"] += 5
        open(os.devnull).close()
        time.sleep(0.4)
        os._exit(0)
    """
    _, files = run(code)
    assert len(files) == 2
    child = next(lines for lines in files.values() if lines[0]["forked"])
    assert _kinds(child) == ["start", "base", "torch", "counters", "end"]
    record = read(str(run.directory), lambda t: (t, ""))
    assert record.counters == {"inductor.fxgraph_cache_miss": 8}
    assert sorted(e.detail[-2:] for e in record.events) == ["+1", "+2", "+5"]


def test_spawned_processes_are_recorded(run: Any, tmp_path: Path) -> None:
    script = tmp_path / "spawn.py"
    script.write_text(
        "import multiprocessing as m, torch\n"
        "def f():\n    import torch\n"
        "if __name__ == '__main__':\n    p = m.get_context('spawn').Process(target=f); p.start(); p.join(); print(p.exitcode)\n"
    )
    out, files = run(f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')")
    assert "0" in out
    assert sum(any(line.get("torch") for line in lines if line["e"] == "end") for lines in files.values()) == 2


def test_triton_listener_chains_the_one_that_is_there(run: Any) -> None:
    code = """
        import time
        from triton import knobs
        seen = []
        knobs.compilation.listener = lambda **event: seen.append(sorted(event))
        from vllm.sim import kernels
        import os; os.environ["TRITON_CACHE_DIR"] = %r
        kernels.launch(["a", "a"])
        time.sleep(0.6)
        kernels.launch(["b"])
        print(len(seen), seen[0])
    """
    out, files = run(code % str(run.directory / "triton"))
    (lines,) = files.values()
    assert "3 ['cache_hit', 'metadata', 'metadata_group', 'src', 'times']" in out
    assert [(line["name"], line["hit"], len(line["key"])) for line in lines if line["e"] == "triton"] == [
        ("a", False, 64),
        ("a", True, 64),
        ("b", False, 64),
    ]


def test_record_of_a_killed_process_can_be_read(run: Any) -> None:
    with pytest.raises(AssertionError):
        run("import os, torch, time; time.sleep(0.4); os.kill(os.getpid(), 9)")
    record = read(str(run.directory), lambda t: (t, ""))
    assert len(record.torch) == 1
    assert record.ended == set()
