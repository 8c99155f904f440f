// SPDX-License-Identifier: Apache-2.0
// What a message would become: how many objects, and for which model. An empty submessage is two
// bytes on the wire and some hundred in memory, and compresses a thousandfold: so a message is
// looked through before it is parsed.
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/zero_copy_stream.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace inflight::kserve_grpc {

constexpr int64_t kMaxSubmessages = 65'536;  // tensors, parameters: requests have a few dozen
constexpr int64_t kMaxTexts = 1 << 20;  // elements of BYTES tensors in `contents`, unknown fields

// A part takes two bytes at least: a message of so many bytes has few, and needs no look.
constexpr size_t kBytesOfFewParts = 4096;

// Bytes that an object takes in memory, about.
constexpr int64_t kSubmessageBytes = 256;
constexpr int64_t kTextBytes = 32;

struct PartCount {
  int64_t num_submessages = 0;
  int64_t num_texts = 0;
  // Of the message itself, as far as it is text of at most kMaxFirstTextBytes: of a
  // ModelInferRequest model_name, model_version and id.
  std::array<std::string, 3> first_texts;

  bool IsTooLarge() const { return num_submessages > kMaxSubmessages || num_texts > kMaxTexts; }
  int64_t num_bytes() const { return num_submessages * kSubmessageBytes + num_texts * kTextBytes; }
};
constexpr int kMaxFirstTextBytes = 4096;

// Of a message of that type, up to the first part that is one too many. Bytes that are no such
// message count as far as they go: the parser says so.
PartCount CountParts(google::protobuf::io::ZeroCopyInputStream& bytes,
                     const google::protobuf::Descriptor& type);

}  // namespace inflight::kserve_grpc
