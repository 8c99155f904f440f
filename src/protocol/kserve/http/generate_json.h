// SPDX-License-Identifier: Apache-2.0
// Flat JSON objects <-> tensors for generate and generate_stream (docs/reference/protocol/http.md).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "inflight/status.h"
#include "json/json_writer.h"
#include "model_config.pb.h"
#include "serving/core/request.h"

namespace inflight::kserve_http {

// Members named like an input become that tensor, `id` the request's id, an object `parameters` is
// read by the same rules, other scalars become custom parameters. The BYTES input `messages` is a
// list or an object, whose JSON is its only element.
Result<serving::Request> ParseGenerate(const ::inference::ModelConfig& config,
                                       std::string_view body, size_t max_input_bytes);

// Writes responses as objects whose members are sorted by name; keeps its scratch memory, so that a
// stream of responses allocates little. Not thread-safe.
class GenerateWriter {
 public:
  // Appends to `out`; on an error (an output without JSON form) `out` is as before.
  Status Write(const serving::Response& response, std::string& out);

 private:
  struct Member {
    std::string_view name;
    std::string_view text;                               // of id, model_name, model_version
    const serving::ParameterValue* parameter = nullptr;  // or of a parameter
    const serving::Tensor* tensor = nullptr;             // or of an output
  };
  void Add(const Member& member);
  static Status WriteMember(const Member& member, json::Writer& out);

  std::vector<Member> members_;
};

}  // namespace inflight::kserve_http
