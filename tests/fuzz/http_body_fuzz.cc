// SPDX-License-Identifier: Apache-2.0
// Bodies of infer (JSON and binary part, with compression) and generate. What is accepted is
// written as an answer and that answer's JSON is read again: it must be valid and of the same
// tensors.
//
// The first byte chooses the endpoint and the split between JSON and binary part.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "json/json_reader.h"
#include "protocol/kserve/http/compression.h"
#include "protocol/kserve/http/generate_json.h"
#include "protocol/kserve/http/infer_request.h"
#include "protocol/kserve/http/infer_response.h"
#include "protocol/kserve/http/tensor_json.h"
#include "serving/core/validate.h"

namespace {

using namespace inflight;               // NOLINT: a fuzzer's main file
using namespace inflight::kserve_http;  // NOLINT

const serving::SharedMemory kNoRegions({.clients_may_register = true, .prefixes = {}});
constexpr size_t kMaxBytes = 1 << 20;

const ::inference::ModelConfig& Config() {
  static const ::inference::ModelConfig kConfig = [] {
    ::inference::ModelConfig config;
    config.set_name("m");
    config.set_max_batch_size(4);
    for (int type = ::inference::TYPE_BOOL; type <= ::inference::TYPE_BF16; ++type) {
      auto* input = config.add_input();
      input->set_name(std::string(1, static_cast<char>('a' + type - 1)));
      input->set_data_type(static_cast<::inference::DataType>(type));
      input->add_dims(type % 2 == 0 ? -1 : 1);
      input->set_optional(true);
    }
    return config;
  }();
  return kConfig;
}

void Require(bool condition) {
  if (!condition) abort();
}

serving::Response Echo(serving::Request request) {
  return {.model_name = "m",
          .model_version = "1",
          .id = std::move(request.id),
          .outputs = std::move(request.inputs),
          .parameters = std::move(request.parameters),
          .is_final = true};
}

// The bytes of a tensor that was written as JSON, read again. NaNs lose their payload.
void RequireSame(const serving::Tensor& tensor, const json::Value& written) {
  const auto [shape, data] = written.Pick<2>({"shape", "data"});
  Require(shape.has_value() && data.has_value());
  const auto again =
      TensorFromArray(tensor.name, tensor.datatype, tensor.shape, *data, {8 * kMaxBytes});
  Require(again.ok());
  if (tensor.datatype == serving::DataType::kFp32 || tensor.datatype == serving::DataType::kFp64) {
    return;
  }
  Require(std::ranges::equal(again->data, tensor.data));
}

void FuzzInfer(std::string body, std::optional<size_t> json_length) {
  auto parsed = ParseInfer(Config(), kNoRegions.Of({}),
                           std::make_shared<std::string>(std::move(body)), json_length, kMaxBytes);
  if (!parsed.ok()) return;
  (void)serving::ValidateRequest(Config(), parsed->request);
  const std::vector<serving::Tensor> inputs = parsed->request.inputs;
  const auto written = WriteInfer(Echo(std::move(parsed->request)), parsed->form);
  if (!written.ok()) return;  // BYTES framed wrongly in the binary part; FP16
  const auto root = json::Value::Parse(written->body);
  Require(root.ok());
  const bool is_all_json = !json_length && written->segments.empty();
  if (!is_all_json || parsed->form.is_binary_by_default || !parsed->form.listed.empty()) {
    return;
  }
  const auto [outputs] = root->Pick<1>({"outputs"});
  Require(outputs.has_value() && *outputs->NumElements() == inputs.size());
  size_t i = 0;
  Require(outputs
              ->ForEachElement([&](json::Value output) {
                RequireSame(inputs[i++], output);
                return Status::Ok();
              })
              .ok());
}

void FuzzGenerate(std::string_view body) {
  auto request = ParseGenerate(Config(), body, kMaxBytes);
  if (!request.ok()) return;
  std::string out;
  GenerateWriter writer;
  Require(writer.Write(Echo(*std::move(request)), out).ok());
  Require(json::Value::Parse(out).ok());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const uint8_t mode = data[0];
  std::string body(reinterpret_cast<const char*>(data + 1), size - 1);
  switch (mode % 4) {
    case 0:
      FuzzInfer(std::move(body), std::nullopt);
      break;
    case 1: {  // the JSON ends at its last brace
      const size_t end = body.rfind('}');
      if (end != std::string::npos) FuzzInfer(std::move(body), end + 1);
      break;
    }
    case 2:
      FuzzGenerate(body);
      break;
    default: {
      const http_listener::HttpRequest request{
          .headers = {{"Content-Encoding", "gzip"}},
          .body = std::make_shared<std::string>(std::move(body))};
      const auto decoded = DecodedBody(request, kMaxBytes);
      if (decoded.ok()) {
        Require((*decoded)->size() <= kMaxBytes);
        FuzzGenerate(**decoded);
      }
    }
  }
  return 0;
}
