"""Start-ups: what a row says, which questions it answers, and how an answer is judged."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from steppe.engine.releases import NEWEST, default_runner, parse_release
from steppe.errors import DeploymentError, DocumentError
from steppe.score.checkpoints import checkpoint_of
from steppe.score.gpus import part_of
from steppe.score.launches import BEFORE_GRAPHS, launch_of
from steppe.score.memory import Row, measure, report_json, totals
from steppe.score.memory_tables import terminal, to_markdown
from steppe.score.sizing import GIB, left_for_cache, size
from steppe.score.starts import Start, read_starts

GOLDEN = Path(os.environ.get("STEPPE_GOLDEN", Path(__file__).parents[2] / "../shared/golden"))
STARTS = GOLDEN.parent / "accuracy/kv_capacity_points.csv"


def start(**changes: str) -> Start:
    """Llama-3.1-8B on one H100 at 16,000 tokens: 2,097,152 bytes a block, 1,000 blocks a request."""
    plain = {
        "model": "meta-llama/Llama-3.1-8B-Instruct",
        "gpu": "H100 (79.18 GiB)",
        "tp": "1",
        "engine_version": "0.31.0",
        "max_model_len": "16000",
        "available_kv_gib": "50",
        "kv_tokens": "409600",
        "max_concurrency": "25.60",
        "checked": "yes",
    } | changes
    return Start(7, plain["model"], plain)


def row(**changes: str) -> Row:
    (made,) = measure([start(**changes)])
    return made


# --- reading --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gpu", "count"),
    [
        ("H100 (79.18 GiB)", 1),
        ("2x H100", 2),
        ("RTX 4090 x2", 2),
        ("DGX Spark GB10 x4", 4),
        ("16 GPUs SM120 (name not seen)", 16),
        ("one 97,887 MiB GPU", 1),
        ("8xH100", 8),
        ("", None),
    ],
)
def test_gpus_are_counted_as_the_cell_writes_them(gpu: str, count: int | None) -> None:
    assert start(gpu=gpu).gpus == count


def test_one_gpu_needs_no_stated_width() -> None:
    assert start(tp="", gpu="1x L40S 46GB").tp == 1
    assert start(tp="", gpu="2x L4 24GB").tp is None
    assert start(tp="", gpu="").tp is None
    assert start(tp="4", gpu="").tp == 4


def test_settings_without_a_column_are_taken_from_the_note() -> None:
    noted = start(note="DCP 8; max_num_seqs 16; block size 128; start refused, 8.18 GiB needed; estimated max len 512")
    assert (noted.dcp, noted.max_num_seqs, noted.block_size) == (8, 16, 128)
    assert (noted.refused, noted.needed_gib, noted.estimated_len) == (True, 8.18, 512)
    silent = start(note="no DCP; block 1568; mamba-block-size 256")
    assert (silent.dcp, silent.max_num_seqs, silent.block_size) == (1, None, None)
    assert (silent.refused, silent.needed_gib, silent.estimated_len) == (False, None, None)
    assert start(note="KV set by bytes to 6 GiB").kv_by_bytes


def test_files_are_read_and_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["model", "gpu", "available_kv_gib", "tp"])
        writer.writeheader()
        writer.writerow({"model": "m", "gpu": "H200", "available_kv_gib": "six", "tp": "1"})
    (read,) = read_starts(path)
    assert (read.line, read.model, read.tp) == (2, "m", 1)
    with pytest.raises(DocumentError, match="line 2: column available_kv_gib must be a number, not 'six'"):
        read.number("available_kv_gib")
    path.write_text("a,b\n")
    with pytest.raises(DocumentError, match="no column model, gpu, available_kv_gib"):
        read_starts(path)
    with pytest.raises(DocumentError, match="cannot be read"):
        read_starts(tmp_path / "none.csv")


# --- names ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "quantization", "name", "weighed"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "", "llama-3.1-8b-instruct", True),
        ("llama 3.1 8b", "", "llama-3.1-8b-instruct", True),
        ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", "fp8", "llama-3.3-70b-instruct-fp8-dynamic", True),
        ("MiniMaxAI/MiniMax-M2.5", "fp8", "minimax-m2.5", True),  # published in FP8
        ("minimax-m2.7-awq (recipe name)", "awq", "minimax-m2.7", False),
        ("Qwen/Qwen3-0.6B-GPTQ-Int4", "gptq", "qwen3-0.6b as int4", True),
        ("Qwen/Qwen3.8-27B-FP8", "fp8", "qwen3.8-27b-fp8", True),
        ("qwen3.6-27b-autoround-int4 (local dir)", "auto_round", "qwen3.6-27b as int4", False),
        ("google/gemma-4-26B-A4B", "", "gemma-4-26b-a4b", True),
        ("gemma4-31b-it-nvfp4", "nvfp4", "gemma-4-31b-it-nvfp4", True),
        ("zai-org/GLM-5.3-Flash", "fp8", "glm-5.3-flash", True),
        ("DeepSeek-V4-Flash-0731", "", "deepseek-v4-flash", True),
        ("openai/gpt-oss-20b", "mxfp4", "gpt-oss-20b", True),
        ("Qwen/QwQ-32B", "", "qwen2.5-32b-instruct", True),  # under a name of its own
        ("nvidia/Llama-3_3-Nemotron-Super-49B-v1", "", "llama-3.3-nemotron-super-49b", True),
        ("mistralai/Mistral-Small-3.1-24B-Instruct-2503", "", "mistral-small-3.2-24b-instruct-2506", True),
    ],
)
def test_models_are_found_by_their_words(model: str, quantization: str, name: str, weighed: bool) -> None:
    found = checkpoint_of(model, quantization)
    assert (found.name, found.weighed) == (name, weighed)


@pytest.mark.parametrize("model", ["some/model", "zai-org/GLM-5.9", "MiniMax-M2.5-REAP-172B", "Qwen3-8B-mini"])
def test_other_architectures_are_not_taken_for_known_ones(model: str) -> None:
    with pytest.raises(DeploymentError):
        checkpoint_of(model, "")


def test_only_its_publisher_and_nvfp4_exports_bring_a_cache_dtype() -> None:
    def own(model: str, quantization: str) -> str:
        return checkpoint_of(model, quantization).graph.globals_.kv_cache_dtype

    assert own("nvidia/Llama-3.1-70B-Instruct-FP8", "fp8") == "fp8"
    assert own("someone/Llama-3.1-70B-Instruct-FP8", "fp8") == ""
    assert own("qwen3-235b-a22b-nvfp4", "nvfp4") == "fp8"


@pytest.mark.parametrize(
    ("gpu", "name", "chip"),
    [
        ("2x H100 (79.18 GiB)", "H100", "h100"),
        ("1x L40S 46GB", "L40S", "l40s"),
        ("4x RTX PRO 6000 96GB", "RTX PRO 6000", "rtx-pro-6000"),
        ("one 97,887 MiB GPU (name not seen)", "a part of 97,887 MiB", ""),
        ("GH200 96GB", "GH200", ""),
        ("GB200", "GB200", "gb200-nvl72"),
        ("A100", "A100, size not stated", ""),
        ("RTX 3090 x2", "RTX 3090", ""),
        ("DGX Spark GB10", "GB10", ""),
    ],
)
def test_parts(gpu: str, name: str, chip: str) -> None:
    part = part_of(gpu)
    assert part is not None
    assert (part.name, part.chip) == (name, chip)


def test_an_unknown_part_is_none() -> None:
    assert part_of("GeForce (model not seen) x2") is None
    assert part_of("") is None


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("0.28.0", (0, 28, 0)),
        ("v0.23.1rc1.dev190+gab6660699", (0, 23, 1)),
        ("0.1.dev20051+g487ecf187", NEWEST),
        ("nightly", None),
    ],
)
def test_releases(text: str, release: Any) -> None:
    assert parse_release(text) == release


def test_the_new_runner_came_to_dense_models_first() -> None:
    assert [default_runner((0, minor, 0), plain=True) for minor in (24, 25, 29)] == ["v1", "v2", "v2"]
    assert [default_runner((0, minor, 0), plain=False) for minor in (24, 25, 29)] == ["v1", "v1", "v2"]


# --- launches -------------------------------------------------------------------------------------------------------


def test_settings_are_passed_as_stated() -> None:
    launch = launch_of(
        start(
            model="Qwen/Qwen3.8-27B",
            kv_cache_dtype="auto (bf16)",
            speculative="mtp 3",
            enforce_eager="true",
            tp="2",
            ep="on",
            gpu_memory_utilization="0.9",
            note="max_num_seqs 4; mamba and ssm cache dtype bfloat16",
        )
    )
    assert launch.parallel == {"tp": 2, "pp": 1, "dp": 1, "enable_expert_parallel": True}
    (world,) = launch.worlds
    assert launch.engine_of(world) == {
        "max_model_len": 16000,
        "max_num_seqs": 4,
        "gpu_memory_utilization": 0.9,
        "cudagraph_mode": "NONE",
        "mamba_ssm_cache_dtype": "bfloat16",
        "speculative": {"method": "mtp", "num_spec_tokens": 3},
        "runner": "v2",
    }


def test_older_releases_size_windows_for_one_batch_and_leave_hybrids_uncached() -> None:
    launch = launch_of(start(model="Qwen/Qwen3.8-27B", engine_version="0.24.0"))
    default, cached = launch.worlds
    assert launch.engine_of(default)["enable_prefix_caching"] is False
    assert launch.engine_of(default)["async_scheduling"] is False
    assert "enable_prefix_caching" not in launch.engine_of(cached)
    assert launch.engine_of(default)["runner"] == "v1"
    newer = launch_of(start(model="Qwen/Qwen3.8-27B", engine_version="0.28.0"))
    assert "enable_prefix_caching" not in newer.engine_of(newer.worlds[0])


def test_a_budget_that_leaves_graphs_out_dates_its_release() -> None:
    note = "budget 0.90 x 79.18 - weights - act 4.84 - nontorch 0.14 = 51.38 | graphs -0.45 GiB"
    launch = launch_of(start(engine_version="", note=note))
    assert launch.release == BEFORE_GRAPHS
    assert launch.assumed
    assert launch_of(start(engine_version="")).release is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "some/model"}, "no model of that name"),
        ({"tp": "", "gpu": ""}, "tp is not stated"),
        ({"speculative": "dflash 7"}, "the dflash drafter's checkpoint is not stated"),
        ({"speculative": "mtp 2"}, "no predictor"),
        ({"speculative": "??"}, "is not read"),
        ({"note": "a speculative config is present but cut off"}, "speculation given but not seen"),
        ({"note": "kv dtype and speculation not seen"}, "cache dtype given but not seen"),
        ({"note": "assuming fp8 as in the sibling threads"}, "cache dtype given but not seen"),
        ({"cache_dtype": "", "kv_cache_dtype": "fp3"}, "fp3"),
    ],
)
def test_rows_that_cannot_be_sized_say_why(changes: dict[str, str], message: str) -> None:
    made = row(**changes)
    assert message in str(made.unanswered)
    assert made.answers == {}


@pytest.mark.parametrize(
    ("cell", "read"),
    [
        ("", ("", 0)),
        ("none", ("", 0)),
        ("mtp", ("mtp", None)),
        ("MTP n=1", ("mtp", 1)),
        ("mtp 4 (gemma-4-31B-it-assistant)", ("mtp", 4)),
        ("dflash2", ("dflash", 2)),
        ("dspark 5", ("dspark", 5)),
        ("eagle3", ("eagle3", None)),
        ("eagle3 3", ("eagle3", 3)),
        ("deepseek_mtp, 2 tokens", ("deepseek_mtp", 2)),
    ],
)
def test_speculation_is_read_as_it_is_written(cell: str, read: tuple[str, int | None]) -> None:
    from steppe.score.launches import speculation_of

    assert speculation_of(start(speculative=cell))[:2] == read


def test_gemma_assistants_keep_no_cache() -> None:
    launch = launch_of(start(model="google/gemma-4-31B-it", speculative="mtp 4 (gemma-4-31B-it-assistant)"))
    assert launch.method == ""
    assert not launch.drafter_weighed


# --- sizing ---------------------------------------------------------------------------------------------------------


def test_a_request_from_the_stated_memory() -> None:
    made = row()
    assert made.answers == {"request": "request_gib"}
    assert made.figures["request_gib"] == (1000 * 2**21 / GIB, pytest.approx(50 / 25.6))
    assert made.figures["max_concurrency"] == (25.6, 25.6)
    assert made.figures["kv_tokens"] == (409600, 409600)
    assert made.passes("request")


def test_tokens_give_more_digits_than_a_printed_concurrency() -> None:
    tokens = str(int(16000 * 25.604))
    assert row(kv_tokens=tokens).figures["max_concurrency"][1] == pytest.approx(25.604, abs=1e-4)
    assert row(kv_tokens="100000").figures["max_concurrency"][1] == 25.6  # not of this release's kind
    assert row(kv_tokens="").figures["max_concurrency"][1] == 25.6
    assert row(max_concurrency="").figures["max_concurrency"][1] == 25.6


def test_a_refused_start_states_its_need_and_the_longest_that_fits() -> None:
    made = row(
        max_model_len="131072",
        available_kv_gib="10",
        kv_tokens="",
        max_concurrency="",
        note="start failed; needed 16.0 GiB; estimated max len 81904",
    )
    assert made.figures["needed_gib"] == (16.0, 16.0)
    assert made.figures["max_len"] == (81904, 81904)
    assert made.main == "request"


def test_an_auto_fitted_length_follows_from_the_tokens() -> None:
    made = row(available_kv_gib="", max_concurrency="", max_model_len="20272", kv_tokens="20272", note="auto-fit value")
    assert made.answers == {"request": "max_len"}
    assert made.figures["max_len"][0] == 20256  # one block is held back


def test_pipeline_stages_are_sized_by_the_stage_that_holds_most() -> None:
    one, two = (size(launch, launch.worlds[0]) for launch in (launch_of(start()), launch_of(start(pp="2"))))
    assert one.request_bytes == 2 * two.request_bytes
    three = launch_of(start(pp="3", tp="1"))
    assert size(three, three.worlds[0]).request_bytes == one.request_bytes * 11 // 32


def test_a_drafter_with_a_graph_counts_its_layers() -> None:
    made = row(speculative="eagle (thread compares eagle and baseline)")
    assert made.figures["request_gib"][0] == pytest.approx(1000 * 2**21 / GIB * 33 / 32)


def test_unstated_settings_that_do_not_matter_are_no_obstacle() -> None:
    assert row(engine_version="", gpu="").passes("request")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model": "google/gemma-4-31B-it", "engine_version": ""}, "release not stated"),
        ({"model": "Qwen/Qwen3.8-27B", "engine_version": "0.26.0"}, "prefix caching not stated"),
        ({"model": "Qwen/Qwen3.8-27B", "speculative": "mtp"}, "number of drafted tokens not stated"),
        ({"model": "google/gemma-4-31B-it", "gpu": "", "kv_tokens": ""}, "part not stated"),
    ],
)
def test_unstated_settings_that_matter_leave_a_row_unanswered(changes: dict[str, str], reason: str) -> None:
    made = row(**changes)
    assert reason in str(made.unanswered)
    assert len(made.candidates) > 1
    assert made.logged_request is not None


def test_a_cache_that_cannot_have_been_sixteen_bits_is_not_answered() -> None:
    made = row(available_kv_gib="25", max_concurrency="25.60")
    assert "cache dtype not stated, and 16 bits would take 2.0 of 1.0 GiB" in str(made.unanswered)
    assert row(available_kv_gib="25", kv_cache_dtype="fp8").passes("request")
    assert not row(available_kv_gib="45").passes("request")  # neither width: a miss, and shown as one


def test_weights_where_their_storage_is_known() -> None:
    assert row(weights_gib="14.99").passes("weights")
    assert not row(weights_gib="15.5").passes("weights")
    assert "weights" not in row(weights_gib="5", quantization="nvfp4").answers
    assert "weights" not in row(weights_gib="14.99", note="fork").answers
    assert "weights" not in row(weights_gib="14.99", pp="2").answers


def test_encoders_are_left_out_of_a_language_model_alone() -> None:
    both = row(model="google/gemma-4-E2B", weights_gib="8.89")
    alone = row(model="google/gemma-4-E2B", weights_gib="8.89", note="language-model-only")
    assert both.figures["weights_gib"][0] - alone.figures["weights_gib"][0] == pytest.approx(0.31, abs=0.01)


def test_buffers_of_sparse_attention_are_in_the_loaded_weights() -> None:
    """Five contexts of a million tokens widened to 16 bits, reserved as layers are built."""
    long = row(model="zai-org/GLM-5.3", gpu="8x H200", tp="8", quantization="fp8", kv_cache_dtype="fp8",
               max_model_len="", weights_gib="94.46")  # fmt: skip
    short = row(model="zai-org/GLM-5.3", gpu="8x H200", tp="8", quantization="fp8", kv_cache_dtype="fp8",
                max_model_len="131072", weights_gib="94.46")  # fmt: skip
    assert long.passes("weights")
    difference = (long.figures["weights_gib"][0] - short.figures["weights_gib"][0]) * GIB
    assert difference == pytest.approx(5 * (1048576 - 131072) * 576 * 2)


def test_capacity_from_the_card() -> None:
    made = row(gpu_memory_utilization="0.9", available_kv_gib="54.5")
    assert made.answers["capacity"] == "available_kv_gib"
    assert made.passes("capacity")
    assert "capacity" not in row(available_kv_gib="54.5").answers
    assert "capacity" not in row(gpu_memory_utilization="0.9", engine_version="").answers
    assert "capacity" not in row(gpu_memory_utilization="0.9", gpu="RTX 3090").answers
    assert "capacity" not in row(gpu_memory_utilization="0.9", note="KV set by bytes to 6 GiB").answers
    by_concurrency = row(gpu_memory_utilization="0.9", available_kv_gib="", kv_tokens="", max_concurrency="28")
    assert by_concurrency.answers["capacity"] == "max_concurrency"


def test_what_the_profile_holds_depends_on_the_release() -> None:
    """The first releases sorted the vocabulary for one row a request, 38 bytes a logit, and charged no graphs."""

    def left(version: str) -> float:
        launch = launch_of(start(engine_version=version, gpu_memory_utilization="0.9"))
        return left_for_cache(launch, launch.worlds[0])

    logits = 1024 * 128256
    graphs = 805306368
    assert left("0.18.0") - left("0.22.0") == graphs
    assert left("0.18.0") - left("0.11.0") == 24 * logits
    hidden, layers = 2 * 4096 * (8192 + 2 * 1024), 12 * 8192 * 4096 * 2
    assert left("0.22.0") - left("0.31.0") == layers + round(4.125 * logits) - 14 * logits - hidden


# --- judging --------------------------------------------------------------------------------------------------------


def test_bars() -> None:
    def passes(question: str, name: str, sized: float, logged: float) -> bool:
        made = Row(start(), figures={name: (sized, logged)}, answers={question: name})
        return made.passes(question)

    assert passes("request", "request_gib", 1.009, 1)
    assert not passes("request", "request_gib", 1.011, 1)
    assert passes("weights", "weights_gib", 98.1, 100)
    assert not passes("weights", "weights_gib", 97.9, 100)
    assert passes("capacity", "available_kv_gib", 5.6, 5)  # within 0.7 GiB
    assert passes("capacity", "available_kv_gib", 96, 100)  # within 5 %
    assert not passes("capacity", "available_kv_gib", 5.8, 5)
    assert passes("capacity", "available_kv_gib", -1.6, -1.4)
    assert not passes("capacity", "max_concurrency", 1.06, 1)


def test_the_report_counts_and_marks_misses() -> None:
    starts = [start(), start(weights_gib="20", checked="no"), start(model="x")]
    rows = measure(starts)
    assert totals(rows)["request"]["answered"] == 2
    assert totals(rows, checked=True)["request"]["answered"] == 1
    assert totals(rows)["weights"]["largest_error"] == pytest.approx(0.252, abs=0.001)
    made = json.loads(json.dumps(report_json(rows)))
    assert (made["summary"]["answered"], made["summary"]["unanswered"]) == (2, 1)
    first, second, third = made["rows"]
    assert first["predicted_kv_tokens"] == first["measured_kv_tokens"] == 409600
    assert first["error"] == pytest.approx(0, abs=1e-9)
    assert first["unanswered"] is None
    assert second["errors"]["weights"] == pytest.approx(-0.252, abs=0.001)
    assert second["passes"] == {"request": True, "weights": False}
    assert third["error"] is None
    assert "no model of that name" in third["unanswered"]
    page = to_markdown(rows)
    assert "weights 14.96/20.00 GiB -25.2 % !" in page
    assert "* weights, all rows: 0 of 1 within the bar" in page
    with Path(os.devnull).open("w") as null:
        console = Console(width=100, record=True, file=null)
        console.print(terminal(rows))
        text = console.export_text()
    assert "request, all rows: 2 of 2 within the bar" in text
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.skipif(not STARTS.is_file(), reason=f"{STARTS} is not there")
def test_published_starts_meet_the_bars() -> None:
    rows = measure(read_starts(STARTS))
    assert len(rows) == 76
    checked = totals(rows, checked=True)["request"]
    assert checked["answered"] >= 23
    assert checked["passed"] >= 0.9 * checked["answered"]
    assert all(made.answers or made.unanswered for made in rows)


@pytest.mark.skipif(not STARTS.is_file(), reason=f"{STARTS} is not there")
def test_the_page_shows_the_rows_as_they_are() -> None:
    """Rewrite the part between the markers with `steppe score --memory FILE --report PAGE.md`."""
    page = (Path(__file__).parents[2] / "docs/research/memory.md").read_text(encoding="utf-8")
    shown = page.split("<!-- start-ups -->\n")[1].split("<!-- /start-ups -->")[0]
    assert shown == to_markdown(measure(read_starts(STARTS)))
