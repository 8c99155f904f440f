# SPDX-License-Identifier: Apache-2.0
"""`inflight run` with beams, several sequences and draws: beams are those of transformers (tests/golden)."""

import json
import re

import numpy as np
from command import DEMO, ROOT, run

GOLDEN = ROOT / "tests" / "golden"
BEAMS = json.loads((GOLDEN / "beam_search.json").read_text())
MODEL = "llama_gqa2"


def answers(tmp_path, lines, model=None):
    path = tmp_path / "lines.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    options = [] if model else ["--dtype", "float32"]
    command = ("run", model or GOLDEN / "data" / MODEL, *options, "--input", path, "--output", tmp_path / "out")
    done = run(*command, check=False)
    results = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    assert done.returncode == (1 if any("error" in result for result in results) else 0), done.stderr
    return results


def test_beams_are_lists_the_best_first(tmp_path):
    cases = [c for c in BEAMS["cases"] if c["model"] == MODEL][:12]
    lines = [
        {
            "input_ids": c["prompt"], "max_tokens": BEAMS["about"]["max_new_tokens"], "beam_width": c["width"],
            "end_id": c["end_ids"], "early_stopping": 2 if c["early_stopping"] == "never" else c["early_stopping"],
            "length_penalty": 1.0, "return_log_probs": True,
        }
        for c in cases
    ]  # fmt: skip
    for case, answer in zip(cases, answers(tmp_path, lines), strict=True):
        assert answer["output_ids"] == case["sequences"]
        lengths = [len(s) + (r == "end_id") for s, r in zip(answer["output_ids"], answer["finish_reason"], strict=True)]
        assert np.allclose(np.array(answer["cum_log_probs"]) / lengths, case["scores"], atol=1e-4)


def test_sequences_are_those_of_the_next_seeds(tmp_path):
    line = {"input_ids": [5, 6, 7], "max_tokens": 8, "top_k": 30, "temperature": 1.5, "end_id": -1}
    lines = [{**line, "random_seed": 11, "num_return_sequences": 3}, *({**line, "random_seed": 11 + i} for i in range(3))]
    together, *alone = answers(tmp_path, lines)
    assert together["output_ids"] == [a["output_ids"] for a in alone]
    assert together["finish_reason"] == ["length"] * 3


def test_temperature_alone_draws_and_its_seed_is_told(tmp_path):
    command = ("run", DEMO, "--device", "cpu", "--prompt", "Once upon a time", "--max-tokens", 24)
    greedy = run(*command)
    assert "by chance" not in greedy.stderr
    drawn = run(*command, "--temperature", 5)
    again = run(*command, "--temperature", 5, "--seed", re.search(r"seed (\d+), by chance", drawn.stderr)[1])
    assert again.stdout == drawn.stdout != greedy.stdout
    assert "by chance" not in again.stderr
    line = {"text_input": "Once upon a time", "max_tokens": 24, "temperature": 5.0}
    (first,) = answers(tmp_path, [line], DEMO)
    (second,) = answers(tmp_path, [{**line, "random_seed": first["seed"]}], DEMO)
    assert second["output_ids"] == first["output_ids"] and "seed" not in second


def test_what_cannot_be_is_an_error_of_its_line(tmp_path):
    line = {"input_ids": [5], "max_tokens": 2}
    wide, many, good = answers(tmp_path, [{**line, "beam_width": 17}, {**line, "num_return_sequences": 2000000000}, line])
    assert "Requested beam width 17 is larger than configured max beam width 16" in wide["error"]
    assert "num_return_sequences: got 2000000000" in many["error"]
    assert len(good["output_ids"]) == 2


def test_a_built_engine_takes_the_widths_that_it_was_built_for(tmp_path):
    run("convert", "--model-dir", GOLDEN / "data" / MODEL, "--output-dir", tmp_path / "checkpoint", "--dtype", "float32")
    line = {"input_ids": [5], "max_tokens": 2, "end_id": -1}
    for options, width in (([], 1), (["--max-beam-width", 3], 3)):
        engine = tmp_path / f"engine{width}"
        run("build", "--checkpoint-dir", tmp_path / "checkpoint", "--output-dir", engine, *options)
        lines = [{**line, "beam_width": width}, {**line, "beam_width": width + 1}]
        good, wide = answers(tmp_path, lines, engine)
        assert np.array(good["output_ids"]).shape == ((width, 2) if width > 1 else (2,))
        assert f"larger than configured max beam width {width}" in wide["error"]
