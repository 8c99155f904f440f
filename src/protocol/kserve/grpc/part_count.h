// SPDX-License-Identifier: Apache-2.0
// How many objects a message would become. An empty submessage is two bytes on the wire and some
// hundred in memory, and compresses a thousandfold: so a message is looked through before it is
// parsed.
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/zero_copy_stream.h>

#include <cstddef>
#include <cstdint>

namespace inflight::kserve_grpc {

constexpr int64_t kMaxSubmessages = 65'536;  // tensors, parameters: requests have a few dozen
constexpr int64_t kMaxTexts = 1 << 20;  // elements of BYTES tensors in `contents`, unknown fields

// A part takes two bytes at least, so that a message of so many bytes needs no look.
constexpr size_t kBytesOfFewParts = 2 * kMaxSubmessages;

// Whether a message of that type has at most so many. True for bytes that are no such message: the
// parser says so.
bool HasFewParts(google::protobuf::io::ZeroCopyInputStream& bytes,
                 const google::protobuf::Descriptor& type);

}  // namespace inflight::kserve_grpc
