# SPDX-License-Identifier: Apache-2.0
"""`inflight pull`, `list`, `rm` and `ps`: against a hub on this machine, with the cache laid out as the hub's own library has
it. Nothing is downloaded from elsewhere."""

import hashlib
import json
import os
import pathlib
import pty
import shutil

import pytest
from command import DEMO, INFLIGHT, error, needs_terminal, run
from hub_stand_in import COMMIT, Hub, git_hash, without_hub

REPO = "org/tiny"
LARGE = b"".join(i.to_bytes(4, "little") for i in range(200_000))  # 800 kB
CONTENTS = {name: (DEMO / name).read_bytes() for name in ("config.json", "tokenizer.json", "tokenizer_config.json")}


@pytest.fixture
def place(tmp_path):
    return dict(without_hub(), HF_HOME=str(tmp_path / "hf"), XDG_DATA_HOME=str(tmp_path / "data"), HOME=str(tmp_path))


@pytest.fixture
def hubs(place):
    """Makes hubs and names the newest in HF_ENDPOINT."""
    made = []

    def make(files, large=(), **options):
        made.append(Hub(REPO, files, large, **options))
        place["HF_ENDPOINT"] = made[-1].endpoint
        return made[-1]

    yield make
    for hub in made:
        hub.close()


def cache(place):
    return pathlib.Path(place["HF_HOME"]) / "hub/models--org--tiny"


def blobs(place):
    return {path.name for path in (cache(place) / "blobs").iterdir()}


def test_a_pulled_model_lies_as_the_hubs_library_lays_it_and_is_served_by_its_name(hubs, place):
    files = dict(CONTENTS, **{"model.safetensors": (DEMO / "model.safetensors").read_bytes(), "README.md": b"#", "a/b.bin": b"x"})
    hub = hubs(files, large=["model.safetensors"])
    done = run("pull", REPO, env=place)
    snapshot = cache(place) / "snapshots" / COMMIT
    assert done.stdout.splitlines()[0] == str(snapshot)
    assert (cache(place) / "refs/main").read_text() == COMMIT
    assert {p.name for p in snapshot.iterdir()} == set(CONTENTS) | {"model.safetensors"}
    assert blobs(place) == {git_hash(data) for data in CONTENTS.values()} | {
        hashlib.sha256(files["model.safetensors"]).hexdigest()
    }
    for name, path in ((p.name, p) for p in snapshot.iterdir()):
        assert path.is_symlink() and path.read_bytes() == files[name]
    answer = run("run", REPO, "--prompt", "Once upon a time", "--max-tokens", 8, env=place).stdout
    assert answer == run("run", DEMO, "--prompt", "Once upon a time", "--max-tokens", 8).stdout
    before = len(hub.requests)
    again = run("pull", REPO, env=place).stdout
    assert "0 B of them downloaded" in again and len(hub.requests) == before + 1  # the list alone


def test_a_download_that_is_cut_off_goes_on_where_it_was(hubs, place):
    hub = hubs(dict(CONTENTS, **{"model.safetensors": LARGE}), large=["model.safetensors"])
    hub.cut_after = 300_000
    run("pull", REPO, env=place)
    ranges = [headers.get("range") for path, headers in hub.requests if path.startswith("/blob/")]
    assert ranges[0] is None and ranges[1].startswith("bytes=") and int(ranges[1][6:-1]) > 0
    # The same across processes: what is there of a file is not asked for again.
    digest = hashlib.sha256(LARGE).hexdigest()
    shutil.rmtree(cache(place))
    (cache(place) / "blobs").mkdir(parents=True)
    (cache(place) / f"blobs/{digest}.incomplete").write_bytes(LARGE[:500_000])
    hub.requests.clear()
    run("pull", REPO, env=place)
    assert [headers.get("range") for path, headers in hub.requests if path.startswith("/blob/")] == ["bytes=500000-"]
    assert (cache(place) / "snapshots" / COMMIT / "model.safetensors").read_bytes() == LARGE


def test_a_store_without_ranges_begins_anew(hubs, place):
    hub = hubs({**CONTENTS, "model.safetensors": LARGE}, large=["model.safetensors"])
    hub.has_ranges = False
    hub.cut_after = 300_000
    run("pull", REPO, env=place)
    assert (cache(place) / "snapshots" / COMMIT / "model.safetensors").read_bytes() == LARGE


def test_files_of_equal_bytes_are_one_download(hubs, place):
    same = {"model-1.safetensors": LARGE, "model-2.safetensors": LARGE}
    hub = hubs({**CONTENTS, **same}, large=same)
    run("pull", REPO, env=place)
    assert hub.count("/blob/") == 1
    for name in same:
        assert (cache(place) / "snapshots" / COMMIT / name).read_bytes() == LARGE


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_wrong_bytes_are_an_error_and_no_model(name, hubs, place):
    hub = hubs({**CONTENTS, "model.safetensors": LARGE}, large=["model.safetensors"])
    hub.wrong.add(name)
    line = error("pull", REPO, env=place)
    assert f"{name} has not the " in line and "that the hub says" in line
    assert not (cache(place) / "refs/main").exists()
    assert "no revision 'main'" in error("inspect", REPO, env=place)
    hub.wrong.clear()
    run("pull", REPO, env=place)


def test_a_hub_that_lists_no_digests_is_asked_for_them(hubs, place):
    hub = hubs({**CONTENTS, "model.safetensors": LARGE}, large=["model.safetensors"])
    hub.has_blobs = False
    run("pull", REPO, env=place)
    assert hashlib.sha256(LARGE).hexdigest() in blobs(place)


def test_tokens_go_to_the_hub_and_nowhere_else(hubs, place):
    hub = hubs({**CONTENTS, "model.safetensors": LARGE}, large=["model.safetensors"], token="hf_secret")
    assert "a token of yours goes into HF_TOKEN" in error("pull", REPO, env=place)
    hub.requests.clear()
    run("pull", REPO, env=dict(place, HF_TOKEN="hf_secret"))
    for path, headers in hub.requests:
        assert ("authorization" in headers) == (not path.startswith("/blob/")), path
    shutil.rmtree(cache(place))
    (pathlib.Path(place["HF_HOME"]) / "token").write_text("hf_secret\n")
    run("pull", REPO, env=place)


def test_a_quantisation_is_one_file_which_the_name_leads_to(hubs, place):
    hubs({"README.md": b"#", "M-Q4_K_M.gguf": b"4" * 5000, "M-Q8_0.gguf": b"8" * 9000}, large=["M-Q4_K_M.gguf", "M-Q8_0.gguf"])
    snapshot = cache(place) / "snapshots" / COMMIT
    assert run("pull", f"{REPO}:q8_0", env=place).stdout.splitlines()[0] == str(snapshot / "M-Q8_0.gguf")
    assert {p.name for p in snapshot.iterdir()} == {"M-Q8_0.gguf"}
    run("pull", REPO, env=place)  # Q4_K_M where none is said
    assert {p.name for p in snapshot.iterdir()} == {"M-Q8_0.gguf", "M-Q4_K_M.gguf"}
    assert "more than one of the GGUF files" in error("inspect", REPO, env=place)
    line = error("pull", f"{REPO}:Q5_K_M", env=place)
    assert "no GGUF file is 'Q5_K_M'" in line and "M-Q4_K_M.gguf, M-Q8_0.gguf" in line
    listed = json.loads(run("list", "--json", env=place).stdout)
    assert [(m["name"], m["bytes"]) for m in listed] == [(f"{REPO}:M-Q4_K_M.gguf", 5000), (f"{REPO}:M-Q8_0.gguf", 9000)]
    run("rm", f"{REPO}:Q4_K_M", "--yes", env=place)
    assert {p.name for p in snapshot.iterdir()} == {"M-Q8_0.gguf"} and len(blobs(place)) == 1


def test_what_may_pass_by_is_tried_again(hubs, place):
    hub = hubs(dict(CONTENTS, **{"model.safetensors": b"w"}))
    hub.busy = 2
    run("pull", REPO, env=place)


@pytest.mark.parametrize(
    ("arguments", "variables", "message"),
    [
        ([REPO], {"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE is set"),
        ([REPO], {"HF_ENDPOINT": "ftp://x"}, "HF_ENDPOINT: got 'ftp://x'"),
        ([REPO + "@v9"], {}, "no such model, revision or file"),
        (["tiny"], {}, "'tiny' is no name of a model, such as org/name"),
        ([], {}, "one model's name is needed"),
    ],
)
def test_what_cannot_be_says_why(arguments, variables, message, hubs, place):
    hubs(CONTENTS)
    assert message in error("pull", *arguments, env=dict(place, **variables))


def test_revisions_are_refs_of_their_own(hubs, place):
    hubs({**CONTENTS, "model.safetensors": b"w"})
    run("pull", f"{REPO}@v1", env=place)
    assert [p.name for p in (cache(place) / "refs").iterdir()] == ["v1"]
    assert [m["name"] for m in json.loads(run("list", "--json", env=place).stdout)] == [f"{REPO}@v1"]


# --- list, rm ---


@pytest.fixture
def two_models(hubs, place):
    """One of the hub, one that was converted into the models' folder."""
    hubs({**CONTENTS, "model.safetensors": (DEMO / "model.safetensors").read_bytes()}, large=["model.safetensors"])
    run("pull", REPO, env=place)
    own = pathlib.Path(place["XDG_DATA_HOME"]) / "inflight/models/mine"
    run("convert", "--model-dir", DEMO, "--output-dir", own, env=place)
    return own


def test_list_tells_names_sizes_and_families(two_models, place):
    models = {m["name"]: m for m in json.loads(run("list", "--json", env=place).stdout)}
    assert set(models) == {REPO, "mine"}
    family = json.loads((DEMO / "config.json").read_text())["architectures"][0]
    assert models[REPO]["family"] == models["mine"]["family"] == family
    assert (models[REPO]["form"], models["mine"]["form"]) == ("Hugging Face", "checkpoint")
    assert models["mine"]["bytes"] == sum(p.stat().st_size for p in two_models.iterdir())
    answers = [run("run", name, "--prompt", "Once", "--max-tokens", 4, env=place).stdout for name in models]
    assert answers[0] == answers[1]
    table = run("list", env=place).stdout.splitlines()
    assert table[0].split() == ["NAME", "SIZE", "FAMILY", "FORM", "FOLDER"] and len(table) == 3


def test_rm_asks_and_yes_answers(two_models, place):
    assert "nobody can be asked; --yes removes it" in error("rm", REPO, env=place, stdin=-3)
    assert "there are mine, org/tiny" in error("rm", "mein", "--yes", env=place)
    run("rm", "mine", REPO, "--yes", env=place)
    assert not two_models.exists() and not cache(place).exists()
    assert "no model is here" in run("list", env=place).stderr


@needs_terminal
@pytest.mark.parametrize(("answer", "stays"), [("n\n", True), ("\n", True), ("y\n", False)])
def test_rm_of_a_terminal_removes_what_a_person_says(answer, stays, two_models, place):
    process, fd = pty.fork()
    if process == 0:
        os.execve(INFLIGHT, ["inflight", "rm", "mine"], place)
    text = b""
    while b"[y/N] " not in text:
        text += os.read(fd, 4096)
    os.write(fd, answer.encode())
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    assert two_models.exists() == stays and status == (1 if stays else 0)
