# SPDX-License-Identifier: Apache-2.0
"""Models in stores, by the commands that take a model's directory: what is asked, checked, kept, and said when it fails."""

import json
import os
import pathlib
import random
import shutil
import stat

import pytest
from certificates import make_certificates
from command import DEMO, error, run
from stand_ins import KEY_ID, REGION, S3, SECRET, Answer, As, Fault, Gs, StandIn, corrupt, crc32c, cut, status

TEXT = "Once upon a time"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A tokenizer is all that `inflight tokenize` needs, and a file with a name that has to be escaped."""
    folder = tmp_path_factory.mktemp("model")
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(DEMO / name, folder / name)
    (folder / "notes + more").mkdir()
    (folder / "notes + more/100% (é).txt").write_text("notes")
    return folder


@pytest.fixture(scope="module")
def ids(model):
    return run("tokenize", model, input=TEXT).stdout


@pytest.fixture
def place(tmp_path):
    """The environment of a user without credentials, with a cache of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "AZURE_", "GOOGLE_", "TRITON_"))}
    kept.update(HOME=str(tmp_path), XDG_CACHE_HOME=str(tmp_path / "cache"), AWS_EC2_METADATA_DISABLED="true",
                GCE_METADATA_HOST="127.0.0.1:9", no_proxy="127.0.0.1")  # fmt: skip
    return kept


@pytest.fixture
def s3(model):
    with S3() as store:
        store.put_folder(model, "llm")
        yield store


@pytest.fixture
def keys(place):
    return place | {"AWS_ACCESS_KEY_ID": KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_DEFAULT_REGION": REGION}


def tokenize(address, environment):
    return run("tokenize", address, input=TEXT, env=environment).stdout


def blobs(environment):
    return [path for path in pathlib.Path(environment["XDG_CACHE_HOME"]).rglob("blobs/*/*")]


# --- S3 ---


def test_a_model_is_fetched_once_and_by_its_owner_alone(s3, keys, ids, model):
    assert tokenize(s3.address("llm"), keys) == ids
    assert len(s3.asked("/models/llm/")) == len(blobs(keys)) == 4
    cache = pathlib.Path(keys["XDG_CACHE_HOME"]) / "inflight/objects"
    for path in [cache, *cache.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    assert not list((cache / "partial").iterdir())
    (copy,) = cache.glob("models/*/*")
    for path in model.rglob("*"):
        if path.is_file():
            assert (copy / path.relative_to(model)).read_bytes() == path.read_bytes()
    s3.requests.clear()
    assert tokenize(s3.address("llm"), keys) == ids
    assert [request.path for request in s3.requests] == ["/models"]  # the listing


def test_what_changed_is_fetched_and_nothing_else(s3, keys, ids):
    tokenize(s3.address("llm"), keys)
    before = blobs(keys)
    s3.requests.clear()
    s3.objects["llm/notes + more/100% (é).txt"] = b"other notes"
    del s3.objects["llm/tokenizer_config.json"]
    assert tokenize(s3.address("llm"), keys) == ids
    assert len(s3.asked("/models/llm/")) == 1
    assert len(blobs(keys)) == len(before)  # the old version left the cache


def test_slashes_in_addresses_are_one_and_a_host_may_have_a_scheme(s3, keys, ids):
    assert tokenize(f"s3://http://{s3.host}//models///llm/", keys) == ids


def test_listings_have_pages(s3, keys, ids):
    s3.page_size = 1
    assert tokenize(s3.address("llm"), keys) == ids
    assert len(s3.asked("continuation-token")) == 3


def test_large_objects_come_in_ranges_beside_each_other(s3, keys, ids):
    size = 40 << 20
    s3.objects["llm/weights.bin"] = random.Random(1).randbytes(size)
    assert tokenize(s3.address("llm"), keys) == ids
    ranges = {request.headers["range"] for request in s3.asked("weights.bin")}
    assert ranges == {f"bytes=0-{(1 << 25) - 1}", f"bytes={1 << 25}-{size - 1}"}
    assert size in [path.stat().st_size for path in blobs(keys)]


def test_uploads_in_parts_are_compared_with_the_digest_of_their_parts(s3, keys, ids):
    s3.objects["llm/weights.bin"] = random.Random(1).randbytes(1_000_000)
    s3.part_bytes["llm/weights.bin"] = 300_000
    s3.faults.append(Fault(corrupt, "weights.bin"))
    assert tokenize(s3.address("llm"), keys) == ids
    assert len(s3.asked("weights.bin")) == 2
    s3.objects["llm/weights.bin"] = s3.objects["llm/weights.bin"][::-1]
    s3.faults.append(Fault(corrupt, "weights.bin", times=99))
    assert "has not the checksum that the store says: MD5" in error("tokenize", s3.address("llm"), input=TEXT, env=keys)


def test_a_transfer_that_breaks_off_goes_on_where_it_was(s3, keys, ids):
    s3.faults.append(Fault(cut(1000), "tokenizer.json"))
    assert tokenize(s3.address("llm"), keys) == ids
    size = (DEMO / "tokenizer.json").stat().st_size
    assert [request.headers.get("range") for request in s3.asked("tokenizer.json")] == [None, f"bytes=1000-{size - 1}"]


@pytest.mark.parametrize("code", [500, 503, 429])
def test_a_busy_store_is_asked_again(s3, keys, ids, code):
    s3.faults += [Fault(status(code), "list-type", times=2), Fault(status(code), "tokenizer.json", times=2)]
    assert tokenize(s3.address("llm"), keys) == ids
    assert len(s3.asked("tokenizer.json")) == 3


def test_wrong_bytes_are_fetched_again_and_never_used(s3, keys, ids):
    s3.faults.append(Fault(corrupt, "tokenizer.json"))
    assert tokenize(s3.address("llm"), keys) == ids
    assert len(s3.asked("tokenizer.json")) == 2


def test_bytes_that_stay_wrong_are_an_error_and_leave_nothing(s3, keys):
    s3.faults.append(Fault(corrupt, "tokenizer.json", times=99))
    said = error("tokenize", s3.address("llm"), input=TEXT, env=keys)
    assert said.startswith(f"inflight: {s3.address('llm')}: 'llm/tokenizer.json' has not the checksum that the store says: MD5 ")
    assert len(s3.asked("tokenizer.json")) == 3
    cache = pathlib.Path(keys["XDG_CACHE_HOME"]) / "inflight/objects"
    assert not list(cache.glob("models/*/*")) and not list(cache.glob("partial/*"))


def test_an_etag_that_is_no_digest_is_not_taken_for_one(s3, keys, ids):
    s3.encrypted.update(s3.objects)
    assert tokenize(s3.address("llm"), keys) == ids


def test_an_object_that_changes_while_it_is_read_is_listed_again(s3, keys, ids):
    def change(answer):
        s3.objects["llm/config.json"] += b" "
        return answer

    s3.faults.append(Fault(change, "list-type"))
    assert tokenize(s3.address("llm"), keys) == ids
    assert len(s3.asked("list-type")) == 2


def test_public_buckets_need_no_keys(s3, place, ids):
    s3.is_public = True
    assert tokenize(s3.address("llm"), place) == ids
    assert all("authorization" not in request.headers for request in s3.requests)


def test_the_bucket_says_its_region(s3, keys, ids):
    assert tokenize(s3.address("llm"), keys | {"AWS_DEFAULT_REGION": "us-west-2"}) == ids


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "other"}, "SignatureDoesNotMatch: The request signature we calculated does not match. "),
        ({"AWS_ACCESS_KEY_ID": "AKIAOTHER"}, "InvalidAccessKeyId: The AWS Access Key Id you provided"),
        ({"AWS_ACCESS_KEY_ID": ""}, "of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY one is set; set both or none"),
        ({"AWS_PROFILE": "none", "AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}, "the AWS profile 'none' has no"),
        ({"TRITON_CLOUD_CREDENTIAL_PATH": "/none.json"}, "TRITON_CLOUD_CREDENTIAL_PATH: /none.json"),
    ],
)
def test_wrong_credentials_are_named_and_secrets_are_not(s3, keys, change, why):
    done = run("tokenize", s3.address("llm"), input=TEXT, env=keys | change, check=False)
    assert done.returncode == 1 and why in done.stderr
    assert SECRET not in done.stderr and "Signature=" not in done.stderr


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("s3://{host}/gone/llm", "NoSuchBucket: The specified bucket does not exist (HTTP 404)"),
        ("s3://{host}/models/none", "no object lies below this address"),
        ("s3://", "a bucket or container is missing; an address is s3://bucket/path, s3://host:port/bucket/path or"),
        ("s3://bad bucket/x", "'bad bucket' is no name of a bucket"),
        ("s3://{host}/models/../x", "a path has no '.' and no '..'"),
        ("as://account", "a bucket or container is missing; an address is as://account/container/path"),
    ],
)
def test_addresses_that_lead_nowhere(s3, keys, address, why):
    assert why in error("tokenize", address.format(host=s3.host), input=TEXT, env=keys)


def test_keys_that_are_no_paths_are_refused(s3, keys, tmp_path):
    s3.objects["llm/../../../outside"] = b"x"
    assert "a key that is no path of a file: 'llm/../../../outside'" in error("tokenize", s3.address("llm"), input=TEXT, env=keys)
    del s3.objects["llm/../../../outside"]
    s3.objects["llm/config.json/below"] = b"x"
    assert "'llm/config.json' is an object, and others lie below it" in error("tokenize", s3.address("llm"), input=TEXT, env=keys)
    assert not list(tmp_path.rglob("outside"))


def test_a_cache_that_others_may_write_to_is_refused(s3, keys):
    cache = pathlib.Path(keys["XDG_CACHE_HOME"]) / "inflight/objects"
    cache.mkdir(parents=True)
    cache.chmod(0o777)
    assert "a folder that nobody else writes to" in error("tokenize", s3.address("llm"), input=TEXT, env=keys)


def test_certificates_are_checked(model, keys, ids, tmp_path):
    certificates = make_certificates(tmp_path)
    with S3(tls=certificates.server) as store:
        store.put_folder(model, "llm")
        address = f"s3://https://{store.host}/models/llm"
        assert tokenize(address, keys | {"AWS_CA_BUNDLE": str(certificates.root.certificate)}) == ids
        store.requests.clear()
        for trusted in ({}, {"AWS_CA_BUNDLE": str(certificates.other_root.certificate)}):
            said = error("tokenize", address, input=TEXT, env=keys | trusted)
            assert f"{store.host}: " in said and "certificate" in said
        assert store.requests == []


# --- where keys come from ---


def test_keys_of_the_shared_files(s3, place, ids, tmp_path):
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/credentials").write_text(
        f"[default]\naws_access_key_id = X\naws_secret_access_key = Y\n[work]\naws_access_key_id={KEY_ID}\n"
        f"aws_secret_access_key = {SECRET}\n"
    )
    (tmp_path / ".aws/config").write_text(f"[profile work]\nregion = {REGION}\n")
    s3.faults.append(Fault(status(500), "nothing"))
    assert tokenize(s3.address("llm"), place | {"AWS_PROFILE": "work"}) == ids
    assert f"/{REGION}/s3/" in s3.requests[0].headers["authorization"]
    other = tmp_path / "elsewhere"
    (tmp_path / ".aws/credentials").rename(other)
    assert tokenize(s3.address("llm"), place | {"AWS_PROFILE": "work", "AWS_SHARED_CREDENTIALS_FILE": str(other)}) == ids
    assert "InvalidAccessKeyId" in error(
        "tokenize", s3.address("llm"), input=TEXT, env=place | {"AWS_SHARED_CREDENTIALS_FILE": str(other)}
    )


def test_the_file_of_triton_stands_in_for_the_environment_and_the_longest_prefix_counts(s3, keys, ids, tmp_path):
    file = tmp_path / "cloud.json"
    wrong = {"key_id": "AKIAOTHER", "secret_key": "x"}
    right = {"key_id": KEY_ID, "secret_key": SECRET, "region": REGION}
    environment = keys | {"TRITON_CLOUD_CREDENTIAL_PATH": str(file)}
    file.write_text(json.dumps({"s3": {"": wrong, s3.address(): right, "s3://other": wrong}}))
    assert tokenize(s3.address("llm"), environment) == ids
    file.write_text(json.dumps({"s3": {"": right, s3.address(): wrong}}))
    assert "InvalidAccessKeyId" in error("tokenize", s3.address("llm"), input=TEXT, env=environment)
    for content, why in [
        ({"gs": {"": "x"}}, "no entry of 's3' is for s3://"),
        ({"s3": {"": {"key": "x"}}}, "has the unknown member 'key'"),
        ({"s3": {"": "x"}}, "the entry '' of 's3' is no object"),
        ([], "is no JSON object"),
    ]:
        file.write_text(json.dumps(content))
        assert why in error("tokenize", s3.address("llm"), input=TEXT, env=environment)


@pytest.fixture
def given(s3):
    """Answers of a metadata service, by path; keys that it gave may expire."""

    class Metadata(StandIn):
        count = 0

        def keys(self):
            self.count += 1
            key_id = f"ASIA{self.count}"
            s3.keys[key_id] = (SECRET, f"token{self.count}")
            answer = {"AccessKeyId": key_id, "SecretAccessKey": SECRET, "Token": f"token{self.count}",
                      "Expiration": "2099-01-01T00:00:00Z"}  # fmt: skip
            return Answer(200, json.dumps(answer).encode())

        def answer(self, request):
            if request.path == "/container":
                return self.keys() if request.headers.get("authorization") == "let me in" else Answer(403)
            if request.path == "/latest/api/token" and request.method == "PUT":
                return Answer(200, b"session") if request.headers["x-aws-ec2-metadata-token-ttl-seconds"] else Answer(400)
            if request.headers.get("x-aws-ec2-metadata-token") == "session":
                if request.path.endswith("/placement/region"):
                    return Answer(200, REGION.encode())
                if request.path.endswith("/security-credentials/"):
                    return Answer(200, b"server-role")
                if request.path.endswith("/security-credentials/server-role"):
                    return self.keys()
            if request.method == "POST":
                assert b"Action=AssumeRoleWithWebIdentity" in request.body and b"WebIdentityToken=web-token" in request.body
                self.keys()
                return Answer(200, (
                    "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>"
                    f"<AccessKeyId>ASIA{self.count}</AccessKeyId><SecretAccessKey>{SECRET}</SecretAccessKey>"
                    f"<SessionToken>token{self.count}</SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration>"
                    "</Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"
                ).encode())  # fmt: skip
            return Answer(404)

    s3.keys.clear()
    with Metadata() as service:
        yield service


def test_keys_of_a_container_and_new_ones_when_they_expire(s3, given, place, ids, tmp_path):
    token = tmp_path / "token"
    token.write_text("let me in\n")
    environment = place | {"AWS_CONTAINER_CREDENTIALS_FULL_URI": f"http://{given.host}/container", "AWS_REGION": REGION,
                           "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(token)}  # fmt: skip

    def expire(answer):
        s3.expired.add("ASIA1")
        return answer

    s3.faults.append(Fault(expire, "list-type"))
    assert tokenize(s3.address("llm"), environment) == ids
    assert given.count == 2
    wrong = environment | {"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://192.0.2.1/container"}
    assert "keys come over https, or over http from a loopback address" in error(
        "tokenize", s3.address("llm"), input=TEXT, env=wrong
    )


def test_keys_and_region_of_an_instance(s3, given, place, ids):
    environment = place | {"AWS_EC2_METADATA_DISABLED": "", "AWS_EC2_METADATA_SERVICE_ENDPOINT": f"http://{given.host}"}
    assert tokenize(s3.address("llm"), environment) == ids
    assert given.requests[0].path == "/latest/api/token" and given.count == 1


def test_keys_for_a_web_identity(s3, given, place, ids, tmp_path):
    (tmp_path / "web").write_text("web-token")
    environment = place | {"AWS_WEB_IDENTITY_TOKEN_FILE": str(tmp_path / "web"), "AWS_ROLE_ARN": "arn:aws:iam::1:role/r",
                           "AWS_ENDPOINT_URL_STS": f"http://{given.host}", "AWS_REGION": REGION}  # fmt: skip
    assert tokenize(s3.address("llm"), environment) == ids


# --- Google ---


@pytest.fixture
def gs(model):
    with Gs() as store:
        store.put_folder(model, "llm")
        yield store


@pytest.fixture
def google(gs, place, tmp_path):
    return place | {"STORAGE_EMULATOR_HOST": f"http://{gs.host}",
                    "GOOGLE_APPLICATION_CREDENTIALS": str(gs.account_file(tmp_path / "account.json"))}  # fmt: skip


def test_a_service_account_signs_for_its_token(gs, google, ids):
    gs.page_size = 2
    assert tokenize("gs://models/llm", google) == ids
    assert len(gs.asked("/token", "POST")) == 1
    assert len(gs.asked("alt=media")) == 4


def test_a_token_that_expires_is_replaced(gs, google, ids):
    def expire(answer):
        gs.tokens.clear()
        return answer

    gs.faults.append(Fault(expire, "maxResults"))
    assert tokenize("gs://models/llm", google) == ids
    assert len(gs.asked("/token", "POST")) >= 2


def test_objects_of_google_are_compared_with_crc32c_where_there_is_no_md5(gs, google, ids):
    assert crc32c(b"123456789") == 0xE3069283  # RFC 3720's successor lists it so
    gs.objects = {key: body for key, body in gs.objects.items() if len(body) < 200_000}
    gs.composite.update(gs.objects)
    gs.faults += [Fault(corrupt, "tokenizer_config.json"), Fault(cut(100), "tokenizer.json")]
    assert tokenize("gs://models/llm", google) == ids
    assert len(gs.asked("tokenizer_config.json")) == 2


def test_an_authorised_user_and_public_buckets_of_google(gs, place, ids, tmp_path):
    environment = place | {"STORAGE_EMULATOR_HOST": gs.host}
    assert "Invalid Credentials (HTTP 401)" in error("tokenize", "gs://models/llm", input=TEXT, env=environment)
    user = tmp_path / "user.json"
    user.write_text(
        f'{{"type": "authorized_user", "client_id": "id", "client_secret": "hush", "refresh_token": "again",'
        f'"token_uri": "http://{gs.host}/token"}}'
    )
    assert tokenize("gs://models/llm", environment | {"GOOGLE_APPLICATION_CREDENTIALS": str(user)}) == ids
    cloud = tmp_path / "cloud.json"
    cloud.write_text(f'{{"gs": {{"gs://models": "{user}"}}}}')
    assert tokenize("gs://models/llm", environment | {"TRITON_CLOUD_CREDENTIAL_PATH": str(cloud)}) == ids
    user.write_text(user.read_text().replace("again", "never"))
    refused = error("tokenize", "gs://models/llm", input=TEXT, env=environment | {"GOOGLE_APPLICATION_CREDENTIALS": str(user)})
    assert "gives no token: HTTP 400 invalid_grant" in refused and "hush" not in refused and "never" not in refused
    gs.is_public = True
    assert tokenize("gs://models/llm", environment) == ids


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{}", "its type is '', service_account and authorized_user are supported"),
        ("no", "is no JSON object"),
        ('{"type": "service_account", "client_email": "a", "private_key": "secret-text"}', "private_key is no RSA key in PEM"),
    ],
)
def test_wrong_files_of_google(gs, place, tmp_path, text, why):
    (tmp_path / "wrong.json").write_text(text)
    environment = place | {"STORAGE_EMULATOR_HOST": gs.host, "GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "wrong.json")}
    said = error("tokenize", "gs://models/llm", input=TEXT, env=environment)
    assert why in said and "secret-text" not in said


# --- Azure ---


@pytest.fixture
def azure(model):
    with As() as store:
        store.put_folder(model, "llm")
        yield store


def test_azures_shared_key(azure, place, ids):
    azure.page_size = 2
    azure.faults += [Fault(cut(1000), "tokenizer.json"), Fault(corrupt, "tokenizer_config.json"), Fault(status(503), "comp=list")]
    environment = place | {"AZURE_STORAGE_CONNECTION_STRING": azure.connection(AccountKey=azure.key)}
    assert tokenize("as://shelf/models/llm", environment) == ids
    assert azure.asked("tokenizer.json")[1].headers["x-ms-range"].startswith("bytes=1000-")
    assert len(azure.asked("tokenizer_config.json")) == 2


def test_azures_other_ways_in(azure, place, ids, tmp_path):
    endpoint = {"AZURE_STORAGE_CONNECTION_STRING": azure.connection()}
    key = {"AZURE_STORAGE_ACCOUNT": "shelf", "AZURE_STORAGE_KEY": azure.key}
    cloud = tmp_path / "cloud.json"
    cloud.write_text(f'{{"as": {{"": {{"account_str": "shelf", "account_key": "{azure.key}"}}}}}}')
    identity = {"AZURE_STORAGE_AUTH_TYPE": "managed_identity", "IDENTITY_ENDPOINT": f"http://{azure.host}/identity",
                "IDENTITY_HEADER": "hush"}  # fmt: skip
    for number, way in enumerate([key, {"TRITON_CLOUD_CREDENTIAL_PATH": str(cloud)},
                                  {"AZURE_STORAGE_SAS_TOKEN": "?" + azure.signature}, identity]):  # fmt: skip
        environment = place | endpoint | way | {"XDG_CACHE_HOME": str(tmp_path / f"cache{number}")}
        assert tokenize("as://shelf/models/llm", environment) == ids
    for way, why in [
        (key | {"AZURE_STORAGE_KEY": "bm8="}, "AuthenticationFailed: Server failed to authenticate the request. (HTTP 403)"),
        (key | {"AZURE_STORAGE_KEY": "%"}, "AZURE_STORAGE_KEY: is no key in base64"),
        (key | {"AZURE_STORAGE_ACCOUNT": "other"}, "is the account 'other', but as://shelf/models/llm is of 'shelf'"),
        ({"AZURE_STORAGE_AUTH_TYPE": "oauth"}, "got 'oauth', managed_identity and default are supported"),
    ]:
        said = error("tokenize", "as://shelf/models/llm", input=TEXT, env=place | endpoint | way)
        assert why in said and azure.key not in said


def test_folders_of_data_lakes_are_empty_blobs(azure, place, ids):
    azure.objects["llm/notes + more"] = b""
    azure.without_md5.update(azure.objects)
    environment = place | {"AZURE_STORAGE_CONNECTION_STRING": azure.connection(AccountKey=azure.key)}
    assert tokenize("as://shelf/models/llm", environment) == ids


# --- the other commands ---


def test_commands_take_addresses(s3, keys, tmp_path):
    s3.put_folder(DEMO, "demo")
    address = s3.address("demo")
    build = ("build", "--checkpoint_dir", address, "--output_dir", tmp_path / "engine", "--max_seq_len", "64")
    run(*build, env=keys)
    s3.put_folder(tmp_path / "engine", "engine")
    prompt = ("--prompt", TEXT, "--max-tokens", "4")
    assert run("run", s3.address("engine"), *prompt, env=keys).stdout == run("run", tmp_path / "engine", *prompt).stdout
    assert "num_layers" in run("inspect", address, env=keys).stdout or "layers" in run("inspect", address, env=keys).stdout
    run("convert", "--model-dir", address, "--output-dir", tmp_path / "checkpoint", env=keys)
    assert (tmp_path / "checkpoint/config.json").exists()
    assert len(s3.asked("/models/demo/model.safetensors")) == 1  # three commands, one copy


def test_the_program_does_not_load_libcurl_without_an_address(model):
    done = run("tokenize", model, input=TEXT, env=os.environ | {"LD_DEBUG": "files"})
    assert "libcurl" not in done.stderr and "libc.so" in done.stderr
