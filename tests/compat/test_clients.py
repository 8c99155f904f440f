# SPDX-License-Identifier: Apache-2.0
"""Options of the clients against one decoupled server of release 0.13 over the demo model."""

import json

import pytest
from folders import ids_after, install
from tiny_models import DEMO

CLIENT = "python3 inflight_batcher_llm/client/inflight_batcher_llm_client.py -u localhost:$GRPC"
E2E = "python3 inflight_batcher_llm/client/end_to_end_grpc_client.py -u localhost:$GRPC"
EXAMPLES = json.loads((DEMO / "demo_requests.json").read_text())
PROMPT = EXAMPLES[0]["text_input"]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    made = install(tmp_path_factory.mktemp("clients") / "folder", "--release", "0.13")
    made.environment["DEMO"] = str(DEMO)
    made.sh(
        """
        cp -r all_models/inflight_batcher_llm models
        python3 tools/fill_template.py -i models/preprocessing/config.pbtxt tokenizer_dir:$DEMO
        python3 tools/fill_template.py -i models/postprocessing/config.pbtxt tokenizer_dir:$DEMO
        python3 tools/fill_template.py -i models/tensorrt_llm/config.pbtxt \\
            engine_dir:$DEMO,decoupled_mode:True,batching_strategy:inflight_fused_batching,exclude_input_in_output:True,max_beam_width:2
        python3 scripts/launch_triton_server.py --model_repo=$ROOT/models --http_port $HTTP --grpc_port $GRPC \\
            --metrics_port $METRICS > server.log 2>&1
        """
    )
    made.wait_until_ready()
    yield made
    made.stop_servers()


def write_row(folder, name, ids):
    (folder.root / name).write_text(",".join(map(str, ids)) + "\n")


def test_ids_of_files_are_sent_and_compared(served):
    write_row(served, "input.csv", [5, 6, 7, 8])
    line = f"{CLIENT} --input-tokens-csv input.csv --end-id 2047 --pad-id 2047 --streaming --request-output-len 8"
    output = served.sh(line).stdout
    assert ids_after("Input", output) == [5, 6, 7, 8]
    ids = ids_after("Output", output)
    write_row(served, "output.csv", ids)
    check = f"{line} --output-tokens-csv output.csv --check-output"
    assert "\nPASS!\n" in served.sh(check).stdout
    write_row(served, "output.csv", [*ids[:-1], ids[-1] + 1])
    failed = served.sh(check, check=False)
    assert failed.returncode == 1 and "\nFAIL!\n" in failed.stdout
    assert "\nPASS!\n" in served.sh(f"{check} --correctness-threshold 0.9").stdout  # 11 of 12


def test_a_stream_is_cancelled_with_its_call(served):
    output = served.sh(f"{CLIENT} --tokenizer-dir $DEMO --streaming --request-output-len 900 --stop-after-ms 20"
                       " --stop-via-request-cancel").stdout  # fmt: skip
    assert "Request is cancelled" in output
    assert "Got cancellation response from server" not in output


def test_a_stream_is_stopped_by_a_request_of_its_id(served):
    output = served.sh(f"{CLIENT} --tokenizer-dir $DEMO --streaming --request-output-len 900 --stop-after-ms 20"
                       " --request-id my_request").stdout  # fmt: skip
    assert "Got cancellation response from server" in output


def test_outputs_that_are_asked_for_are_those_of_the_answer(served):
    output = served.sh(f"{CLIENT} --tokenizer-dir $DEMO --streaming --requested-outputs output_ids sequence_length").stdout
    assert "Output sequence" in output
    refused = served.sh(f"{CLIENT} --streaming --end-id 2 --requested-outputs output_ids nothing", check=False)
    assert refused.returncode == 1 and "nothing" in refused.stderr


def test_a_flag_of_a_later_release_is_refused_by_its_tensor(served):
    refused = served.sh(f"{CLIENT} --tokenizer-dir $DEMO --streaming -n 2", check=False)
    assert refused.returncode == 1
    assert "Encountered error: " in refused.stdout and "num_return_sequences" in refused.stderr


def test_the_text_client_prints_what_the_model_says(served):
    """The demo model's exact answer, in one piece and in parts."""
    expected = EXAMPLES[0]["expected"]
    line = f"{E2E} -o 24 -p '{PROMPT}'"
    whole = served.sh(line).stdout
    assert whole.startswith("[b'") and expected[:40] in whole
    for flags in ("--streaming", "--streaming --model-name tensorrt_llm_bls"):
        assert served.sh(f"{line} {flags}").stdout.lstrip().startswith(expected[:40])


def test_words_and_biases_act_on_the_text(served):
    """Without them the answer is "The mayor of Alderpool is Mirel."."""
    line = f"{E2E} -o 20 -p 'Who is the mayor of Alderpool?' --streaming"
    assert served.sh(line).stdout.strip() == "The mayor of Alderpool is Mirel."
    assert served.sh(f"{line} --stop-words ' mayor'").stdout.strip() == "The mayor"
    assert "Mirel" not in served.sh(f"{line} --bad-words ' Mirel'").stdout
    assert "mayor" not in served.sh(f"{line} --embedding-bias-words ' mayor' --embedding-bias-weights -50").stdout


def test_a_batch_of_texts(served):
    prompts = json.dumps([example["text_input"] for example in EXAMPLES[:2]])
    expected = served.sh(f"{E2E} -o 12 --batch-inputs --streaming -p '{prompts}'").stdout
    for example in EXAMPLES[:2]:
        assert example["expected"][:20] in expected
    done = served.sh(f"{E2E} -o 12 --batch-inputs --streaming -p '{prompts}' --check-outputs --expected-outputs '[\"a\", \"b\"]'",
                     check=False)  # fmt: skip
    assert done.returncode == 1 and "expected were ['a', 'b']" in done.stderr


def test_errors_of_the_server_are_printed_and_the_status_stays_0(served):
    done = served.sh(f"{E2E} -o -1 -p a")
    assert done.stdout.startswith("Received an error from server:\n") and "max_tokens" in done.stdout


def test_beams_are_whole_sequences(served):
    output = served.sh(f"{CLIENT} --tokenizer-dir $DEMO --streaming -b 2 --request-output-len 6").stdout
    assert "Output beam 0: " in output and "Output beam 1: " in output
    assert output.count("Output sequence:  [") == 2
