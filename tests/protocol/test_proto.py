# SPDX-License-Identifier: Apache-2.0
"""Our .proto files against the descriptors inside the published client: names, numbers, types, labels, oneofs."""

import pathlib
import shutil
import subprocess

import pytest
from google.protobuf import descriptor_pb2
from tritonclient.grpc import model_config_pb2, service_pb2

PROTO_DIR = pathlib.Path(__file__).resolve().parents[2] / "src" / "proto"
# What this contract has and the published client of the test environment may not have yet: (message or enum, name).
NEWER_THAN_CLIENT = set()


def our_files(tmp_path):
    protoc = shutil.which("protoc")
    assert protoc, "protoc is needed (Debian: protobuf-compiler)"
    out = tmp_path / "ours.binpb"
    names = ["model_config.proto", "grpc_service.proto"]
    subprocess.run([protoc, f"--proto_path={PROTO_DIR}", f"--descriptor_set_out={out}", *names], check=True)
    files = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    return {f.name: f for f in files.file}


def flatten(file):
    """{full name: {field or value name: what the wire and the generated code see of it}}"""
    result = {}

    def add_enum(prefix, enum):
        result[f"{prefix}{enum.name}"] = {v.name: v.number for v in enum.value}

    def add_message(prefix, message):
        oneofs = [o.name for o in message.oneof_decl]
        result[f"{prefix}{message.name}"] = {
            f.name: (f.number, f.type, f.label, f.type_name, oneofs[f.oneof_index] if f.HasField("oneof_index") else "")
            for f in message.field
        }
        for nested in message.nested_type:
            add_message(f"{prefix}{message.name}.", nested)
        for enum in message.enum_type:
            add_enum(f"{prefix}{message.name}.", enum)

    for message in file.message_type:
        add_message("", message)
    for enum in file.enum_type:
        add_enum("", enum)
    for service in file.service:
        result[service.name] = {
            m.name: (m.input_type, m.output_type, m.client_streaming, m.server_streaming) for m in service.method
        }
    return result


def published(module):
    file = descriptor_pb2.FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(file)
    return file


@pytest.mark.parametrize("ours_name, module", [("model_config.proto", model_config_pb2), ("grpc_service.proto", service_pb2)])
def test_descriptors_agree_with_the_published_client(tmp_path, ours_name, module):
    ours_file, theirs_file = our_files(tmp_path)[ours_name], published(module)
    assert ours_file.package == theirs_file.package == "inference"
    ours, theirs = flatten(ours_file), flatten(theirs_file)
    assert len(theirs) > 20
    for name, fields in theirs.items():
        assert name in ours, f"{name} is missing"
        for field, description in fields.items():
            assert ours[name].get(field) == description, f"{name}.{field}"
    extra = {(name, field) for name in ours for field in ours[name] if field not in theirs.get(name, {})}
    assert extra == NEWER_THAN_CLIENT & extra, f"unknown to the client: {sorted(extra - NEWER_THAN_CLIENT)}"
