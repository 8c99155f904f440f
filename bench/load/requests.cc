// SPDX-License-Identifier: Apache-2.0
#include "bench/load/requests.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace inflight::bench {
namespace {

using nlohmann::json;

json GenerateBody(const LoadOptions& options, const LoadPrompt& prompt) {
  const bool stream = options.protocol == LoadProtocol::kGenerateStream;
  json body;
  if (prompt.ids.empty()) {
    body = {{"text_input", prompt.text},
            {"max_tokens", prompt.output_len},
            {"bad_words", ""},
            {"stop_words", ""},
            {"stream", stream}};
  } else {
    body = {{"input_ids", prompt.ids},
            {"input_lengths", prompt.ids.size()},
            {"request_output_len", prompt.output_len},
            {"streaming", stream}};
  }
  if (options.ignore_end) body["end_id"] = -1;
  return body;
}

json Tensor(const char* name, const char* datatype, size_t size, json data) {
  return {{"name", name}, {"datatype", datatype}, {"shape", {1, size}}, {"data", std::move(data)}};
}

json InferBody(const LoadOptions& options, const LoadPrompt& prompt) {
  json inputs = json::array();
  if (prompt.ids.empty()) {
    inputs.push_back(Tensor("text_input", "BYTES", 1, {prompt.text}));
    inputs.push_back(Tensor("max_tokens", "INT32", 1, {prompt.output_len}));
  } else {
    inputs.push_back(Tensor("input_ids", "INT32", prompt.ids.size(), prompt.ids));
    inputs.push_back(Tensor("input_lengths", "INT32", 1, {prompt.ids.size()}));
    inputs.push_back(Tensor("request_output_len", "INT32", 1, {prompt.output_len}));
  }
  if (options.ignore_end) inputs.push_back(Tensor("end_id", "INT32", 1, {-1}));
  const char* output = prompt.ids.empty() ? "text_output" : "output_ids";
  return {{"inputs", inputs}, {"outputs", {{{"name", output}}}}};
}

}  // namespace

std::string HttpRequestBytes(const LoadOptions& options, const LoadPrompt& prompt) {
  const bool is_infer = options.protocol == LoadProtocol::kInfer;
  const std::string body =
      (is_infer ? InferBody(options, prompt) : GenerateBody(options, prompt)).dump();
  const char* action = is_infer                                      ? "infer"
                       : options.protocol == LoadProtocol::kGenerate ? "generate"
                                                                     : "generate_stream";
  return fmt::format(
      "POST /v2/models/{}/{} HTTP/1.1\r\nHost: {}:{}\r\nContent-Type: application/json\r\n"
      "Content-Length: {}\r\n\r\n{}",
      options.model, action, options.host, options.port, body.size(), body);
}

// Elements of the array, or 1 of the scalar, behind the key: generate gives "output_ids", infer the
// "data" of its only output.
int CountOutputIds(LoadProtocol protocol, std::string_view json) {
  const std::string_view key = protocol == LoadProtocol::kInfer ? "\"data\":" : "\"output_ids\":";
  const size_t at = json.find(key);
  if (at == std::string_view::npos) return 0;
  json.remove_prefix(at + key.size());
  if (!json.starts_with('[')) return 1;
  const std::string_view items = json.substr(1, json.find(']') - 1);
  if (items.empty()) return 0;
  return 1 + static_cast<int>(std::count(items.begin(), items.end(), ','));
}

std::string ErrorKind(std::string_view prefix, std::string_view body) {
  const json parsed = json::parse(body, nullptr, /*allow_exceptions=*/false);
  std::string message =
      parsed.is_object() && parsed.contains("error") && parsed["error"].is_string()
          ? parsed["error"].get<std::string>()
          : std::string(body.substr(0, 80));
  for (char& c : message)
    if (c >= '0' && c <= '9') c = '#';
  return fmt::format("{}: {}", prefix, message.substr(0, 120));
}

}  // namespace inflight::bench
