# SPDX-License-Identifier: Apache-2.0
"""Server reflection as clients see it that have no .proto file: gRPC's own for Python, and requests made by hand."""

import contextlib
import hashlib
import json

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_reflection.v1alpha import reflection_pb2 as pb
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from live_server import start_server
from test_proto import flatten, published
from tritonclient.grpc import model_config_pb2, service_pb2

SERVICES = [
    "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection",
    "inference.GRPCInferenceService",
]  # fmt: skip
VERSIONS = ("v1", "v1alpha")
UNIMPLEMENTED, INTERNAL, EXHAUSTED = (
    grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.INTERNAL, grpc.StatusCode.RESOURCE_EXHAUSTED,
)  # fmt: skip
Request = pb.ServerReflectionRequest


@contextlib.contextmanager
def channel_to(path, repository, *options):
    server = start_server(path, None, "--model-repository", repository, *options, max_kv_tokens=None)
    try:
        with grpc.insecure_channel(server.grpc) as channel:
            yield channel
    finally:
        assert server.stop() == 0, server.log.read_text()[-4000:]


@pytest.fixture(scope="module")
def channel(tmp_path_factory, repository):
    """To a server that describes itself."""
    with channel_to(tmp_path_factory.mktemp("reflection"), repository, "--grpc-reflection=true") as made:
        yield made


def ask(channel, version, *requests, metadata=(), compression=None):
    """The responses of one stream; a request may be bytes."""
    method = channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        request_serializer=lambda request: request if isinstance(request, bytes) else request.SerializeToString(),
        response_deserializer=pb.ServerReflectionResponse.FromString,
    )
    return list(method(iter(requests), metadata=metadata, compression=compression, timeout=30))


def failure(*arguments, **options):
    with pytest.raises(grpc.RpcError) as caught:
        ask(*arguments, **options)
    return caught.value.code(), caught.value.details()


def files_of(response):
    return [
        descriptor_pb2.FileDescriptorProto.FromString(data) for data in response.file_descriptor_response.file_descriptor_proto
    ]


# --- gRPC's own client ---


@pytest.fixture(scope="module")
def pool(channel):
    """What a client knows that asks for what it needs."""
    return descriptor_pool.DescriptorPool(ProtoReflectionDescriptorDatabase(channel))


def test_the_services_are_listed(channel):
    assert list(ProtoReflectionDescriptorDatabase(channel).get_services()) == SERVICES


@pytest.mark.parametrize("name, module", [("grpc_service.proto", service_pb2), ("model_config.proto", model_config_pb2)])
def test_what_is_described_is_what_published_clients_have(pool, name, module):
    described = descriptor_pb2.FileDescriptorProto()
    pool.FindFileByName(name).CopyToProto(described)
    assert described.package == "inference"
    assert flatten(described) == flatten(published(module))


def test_reflection_describes_itself_as_published(pool):
    own, theirs = (
        {message.name: {field.name: (field.number, field.type) for field in message.fields} for message in messages}
        for messages in (
            pool.FindFileByName("reflection.proto").message_types_by_name.values(),
            pb.DESCRIPTOR.message_types_by_name.values(),
        )
    )
    assert own == theirs
    for service in SERVICES[1:3]:
        method = pool.FindServiceByName(service).methods_by_name["ServerReflectionInfo"]
        assert method.client_streaming and method.server_streaming
        assert method.input_type.name == "ServerReflectionRequest"


def test_the_health_check_is_described_as_it_is_offered(pool):
    service = pool.FindServiceByName("grpc.health.v1.Health")
    assert list(service.methods_by_name) == ["Check"]
    assert [field.name for field in service.methods_by_name["Check"].input_type.fields] == ["service"]


@pytest.mark.parametrize(
    "service, method, request_text, field, expected",
    [
        ("inference.GRPCInferenceService", "ServerMetadata", {}, "name", "triton"),
        ("inference.GRPCInferenceService", "ModelReady", {"name": "identity"}, "ready", True),
        ("grpc.health.v1.Health", "Check", {}, "status", 1),
    ],
)
def test_a_call_can_be_made_of_what_is_described(channel, pool, service, method, request_text, field, expected):
    described = pool.FindServiceByName(service).methods_by_name[method]
    request_type, response_type = (message_factory.GetMessageClass(m) for m in (described.input_type, described.output_type))
    call = channel.unary_unary(
        f"/{service}/{method}", request_serializer=request_type.SerializeToString,
        response_deserializer=response_type.FromString,
    )  # fmt: skip
    assert getattr(call(request_type(**request_text), timeout=30), field) == expected


# --- requests by hand ---


@pytest.mark.parametrize("version", VERSIONS)
def test_files_come_with_all_that_they_import(channel, version):
    for service in SERVICES:
        (response,) = ask(channel, version, Request(file_containing_symbol=service))
        files = files_of(response)
        names = [file.name for file in files]
        package, _, name = service.rpartition(".")
        assert files[0].package == package and name in [s.name for s in files[0].service]
        assert len(names) == len(set(names))
        assert all(imported in names for file in files for imported in file.dependency)
        (by_name,) = ask(channel, version, Request(file_by_filename=names[0]))
        assert by_name.file_descriptor_response == response.file_descriptor_response


@pytest.mark.parametrize("version", VERSIONS)
def test_what_cannot_be_answered_leaves_the_stream_open(channel, version):
    requests = [
        Request(host="h", file_containing_symbol="inference.Nope"),
        Request(host="h", file_by_filename="google/protobuf/descriptor.proto"),
        Request(host="h", all_extension_numbers_of_type="Nope"),
        Request(host="h", file_containing_extension=pb.ExtensionRequest(containing_type="Nope", extension_number=1)),
        Request(host="h", file_containing_extension=pb.ExtensionRequest(containing_type="inference.ModelConfig")),
        Request(host="h"),
        Request(),
        Request(host="h", list_services=""),
    ]
    responses = ask(channel, version, *requests)
    assert [response.original_request for response in responses] == requests
    assert [response.valid_host for response in responses] == [request.host for request in requests]
    assert [response.error_response.error_code for response in responses] == [5, 5, 5, 5, 5, 3, 3, 0]
    assert all(response.error_response.error_message for response in responses[:-1])
    assert [service.name for service in responses[-1].list_services_response.service] == SERVICES


def test_messages_have_no_extensions(channel):
    (response,) = ask(channel, "v1", Request(all_extension_numbers_of_type="inference.ModelConfig"))
    assert response.all_extension_numbers_response == pb.ExtensionNumberResponse(base_type_name="inference.ModelConfig")


@pytest.mark.parametrize("version", VERSIONS)
def test_bad_messages_end_the_stream(channel, version):
    for data in (b"\x0a\xff\xff", b"\x1a\x02\xff\xff", b"\x00"):  # cut off; no UTF-8; no field
        assert failure(channel, version, data) == (INTERNAL, "Unable to parse request"), data
    long = Request(file_containing_symbol="x" * 4096)
    expected = (EXHAUSTED, "a request of server reflection has at most 4096 bytes")
    assert failure(channel, version, long) == expected
    assert failure(channel, version, Request(host="x" * (1 << 20)), compression=grpc.Compression.Gzip) == expected
    (response,) = ask(channel, version, Request(host="x" * 4000, list_services="*"), compression=grpc.Compression.Gzip)
    assert len(response.list_services_response.service) == 4


def test_unknown_fields_are_passed_over(channel):
    responses = ask(channel, "v1", Request(list_services="*").SerializeToString() + b"\xfa\x01\x01x", b"")
    assert len(responses[0].list_services_response.service) == 4
    assert responses[1].error_response.error_code == 3


def test_other_methods_are_not_offered(channel):
    for path in ("v1.ServerReflection/Nope", "v2.ServerReflection/ServerReflectionInfo", "v1.Other/ServerReflectionInfo"):
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(f"/grpc.reflection.{path}")(b"", timeout=30)
        assert caught.value.code() == UNIMPLEMENTED


# --- who may ask ---


@pytest.mark.parametrize("version", VERSIONS)
def test_by_default_it_is_not_offered(server, version):
    with grpc.insecure_channel(server.grpc) as channel:
        assert failure(channel, version, Request(list_services="*")) == (UNIMPLEMENTED, "")


def test_it_is_closed_with_the_metadata_of_the_server(tmp_path, repository):
    rule = "--grpc-restricted-protocol=metadata:word=sesame"
    with channel_to(tmp_path, repository, "--grpc-reflection=true", rule) as channel:
        request = Request(list_services="*")
        code, text = failure(channel, "v1", request)
        assert code == grpc.StatusCode.UNAVAILABLE
        assert text == "This protocol is restricted, expecting header 'triton-grpc-protocol-word'"
        assert len(ask(channel, "v1", request, metadata=[("triton-grpc-protocol-word", "sesame")])) == 1


def test_it_needs_a_key_that_may_infer(tmp_path, repository):
    keys = {"user": ["inference"], "reader": ["metrics"], "slow": ["inference"]}
    limits = {"slow": {"requests_per_second": 0.001, "burst": 3}}
    access = tmp_path / "access.json"
    access.write_text(json.dumps({"keys": [
        {"name": name, "sha256": hashlib.sha256(name.encode()).hexdigest(), "roles": roles, **limits.get(name, {})}
        for name, roles in keys.items()
    ]}))  # fmt: skip
    with channel_to(tmp_path, repository, "--grpc-reflection=true", "--access", access) as channel:
        request = Request(list_services="*")

        def key(name):
            return [("authorization", f"Bearer {name}")]

        assert failure(channel, "v1", request)[0] == grpc.StatusCode.UNAUTHENTICATED
        assert failure(channel, "v1", request, metadata=key("guess"))[0] == grpc.StatusCode.UNAUTHENTICATED
        assert failure(channel, "v1", request, metadata=key("reader"))[0] == grpc.StatusCode.PERMISSION_DENIED
        assert len(ask(channel, "v1", *[request] * 20, metadata=key("user"))) == 20
        # The stream counts, and so does each of its requests.
        code, text = failure(channel, "v1", *[request] * 3, metadata=key("slow"))
        assert code == EXHAUSTED and "requests_per_second" in text
