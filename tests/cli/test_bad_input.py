"""Bad input to any command ends with exit code 2 and one message that says what to change; never with a traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from command import steppe

DEPLOYED = ("--model", "llama-3.1-8b-instruct", "--hardware", "h100")
DATA = Path(__file__).parent.parent / "data"

# What is typed, and a part of the message.
CASES: dict[str, tuple[tuple[str, ...], str]] = {
    "price nothing": (("price",), "--model and --hardware"),
    "price model alone": (("price", "--model", "llama-3.1-8b-instruct"), "--hardware"),
    "price unknown model": (("price", "-m", "lama-3.1-8b-instruct", "-g", "h100"), "llama-3.1-8b-instruct"),
    "price unknown part": (("price", "-m", "llama-3.1-8b-instruct", "-g", "h10"), "h100"),
    "price both": (("price", str(DATA / "scenarios" / "plain.yaml"), *DEPLOYED), "not both"),
    "price missing file": (("price", "nowhere.yaml"), "nowhere.yaml"),
    "price directory": (("price", str(DATA)), str(DATA)),
    "price not a document": (("price", __file__), "test_bad_input.py"),
    "price unknown names": (("price", str(DATA / "scenarios" / "plain.yaml")), "plain"),
    "price tp 0": (("price", *DEPLOYED, "--tp", "0"), "tp"),
    "price tp negative": (("price", *DEPLOYED, "--tp", "-4"), "tp"),
    "price tp 3": (("price", *DEPLOYED, "--tp", "3"), "3"),
    "price tp text": (("price", *DEPLOYED, "--tp", "four"), "--tp"),
    "price tp 16 without fabric": (("price", *DEPLOYED, "--tp", "16"), "fabric"),
    "price unknown fabric": (("price", *DEPLOYED, "--tp", "16", "--fabric", "token-ring"), "token-ring"),
    "price dcp": (("price", *DEPLOYED, "--tp", "8", "--dcp", "3"), "dcp"),
    "price pcp": (("price", *DEPLOYED, "--pcp", "2"), "pcp"),
    "price ep dense": (("price", *DEPLOYED, "--ep", "--dp", "2"), "expert"),
    "price engine no value": (("price", *DEPLOYED, "-e", "cache_dtype"), "KEY=VALUE"),
    "price engine unknown key": (("price", *DEPLOYED, "-e", "tensor_parallel_size=2"), "tensor_parallel_size"),
    "price engine wrong type": (("price", *DEPLOYED, "-e", "max_num_seqs=lots"), "max_num_seqs"),
    "price engine broken yaml": (("price", *DEPLOYED, "-e", "max_num_seqs=["), "max_num_seqs"),
    "price engine nested in scalar": (("price", *DEPLOYED, "-e", "eplb=1", "-e", "eplb.enable_eplb=true"), "eplb"),
    "price pipeline": (("price", *DEPLOYED, "-e", "cudagraph_mode=SOMETIMES"), "SOMETIMES"),
    "price bad decode": (("price", *DEPLOYED, "--decode", "64"), "N@CONTEXT"),
    "price bad prefill": (("price", *DEPLOYED, "--prefill", "-5"), "p"),
    "price bad step": (("price", *DEPLOYED, "--step", "64@2048+q7"), "64@2048+q7"),
    "price huge step": (("price", *DEPLOYED, "--step", "1@99999999999"), "computed"),
    "price beyond max_model_len": (
        ("price", *DEPLOYED, "-e", "max_model_len=4096", "--decode", "1@4096"), "max_model_len"),
    "price unknown option": (("price", *DEPLOYED, "--gpus", "8"), "--gpus"),
    "explain no step": (("explain",), "STEP"),
    "explain bad step": (("explain", "hello", *DEPLOYED), "hello"),
    "explain no deployment": (("explain", "1@10"), "--hardware"),
    "explain missing file": (("explain", "1@10", "nowhere.yaml"), "nowhere.yaml"),
    "provenance nothing": (("provenance",), "--hardware"),
    "memory nothing": (("memory",), "--hardware"),
    "memory unknown part": (("memory", "-m", "llama-3.1-8b-instruct", "-g", "h1000"), "h1000"),
    "memory negative context": (("memory", *DEPLOYED, "--context", "-1"), "--context"),
    "validate nothing": (("validate",), "no file"),
    "validate missing": (("validate", "nowhere.yaml"), "nowhere.yaml"),
    "validate not yaml": (("validate", __file__), "test_bad_input.py"),
    "validate unknown schema": (("validate", "--schema", "Modell"), "Modell"),
    "validate unknown root": (("validate", str(DATA / "scenarios" / "plain.yaml"), "--catalog", "nowhere"), "nowhere"),
    "derive nothing": (("derive",), "config.json"),
    "derive missing": (("derive", "nowhere.json"), "nowhere.json"),
    "derive not json": (("derive", __file__), "test_bad_input.py"),
    "derive folder without": (("derive", str(DATA)), "config.json"),
    "catalog show nothing": (("catalog", "show"), ""),
    "catalog show unknown": (("catalog", "show", "h10"), "h10"),
    "calibrate nothing": (("calibrate",), "--data"),
    "calibrate missing data": (("calibrate", "--data", "nowhere", "--out", "nowhere-else"), "nowhere"),
    "score nothing": (("score",), "file"),
    "score missing": (("score", "nowhere.csv"), "nowhere.csv"),
    "score not points": (("score", __file__), "test_bad_input.py"),
    "score memory not start-ups": (("score", __file__, "--memory"), "test_bad_input.py"),
    "unknown command": (("prise",), "prise"),
}  # fmt: skip


@pytest.mark.parametrize(("arguments", "said"), CASES.values(), ids=CASES)
def test_exit_code_and_message(arguments: tuple[str, ...], said: str) -> None:
    ran = steppe(*arguments)
    message = ran.err + ran.out
    assert ran.code == 2, message
    assert said in message.replace("\n", " ") or said in "".join(message.split("\n")), message
    assert "Traceback" not in message
    assert 0 < len(message.splitlines()) <= 40, message


HOSTILE = (
    "", "kind: Scenario", "[1, 2", "kind: Scenario\nkind: Scenario\n", "a: &a [*a]", "\x00\x01\x02",
    "!!python/object/apply:os.system ['true']", "kind: Deployment\nname: x\npools: []\n", "- just\n- a list\n",
    "---\n---\n---\n", "{" * 500, "x: " + "1" * 5000,
)  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_documents(text: str, tmp_path: Path) -> None:
    file = tmp_path / "hostile.yaml"
    file.write_text(text)
    for command in ("price", "memory", "provenance", "validate"):
        ran = steppe(command, file)
        assert ran.code == 2, (command, ran)
        assert "hostile.yaml" in ran.out + ran.err
        assert "Traceback" not in ran.out + ran.err


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    file = tmp_path / "binary.yaml"
    file.write_bytes(bytes(range(256)))
    ran = steppe("price", file)
    assert ran.code == 2
    assert "binary.yaml" in ran.err


def test_a_process_exits_with_2_and_one_line() -> None:
    """The same through a real interpreter: nothing but the message on standard error."""
    command = [sys.executable, "-W", "error", "-m", "steppe", "price", "-m", "no-such-model", "-g", "h100"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert ran.stdout == ""
    assert ran.stderr.startswith("steppe: ")
    assert "no-such-model" in ran.stderr
    assert "Traceback" not in ran.stderr
