// SPDX-License-Identifier: Apache-2.0
#include "simulation/server/asked_request.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "simulation/fake_tokens.h"
#include "simulation/server/simulated_server.h"

namespace inflight::testing {
namespace {

using Json = nlohmann::json;
using Kind = AskedRequest::Kind;

constexpr int kMaxPromptTokens = 24;
constexpr size_t kTooLongBytes = 20'000;

std::string RandomText(Random& random, int size) {
  std::string text(static_cast<size_t>(size), ' ');
  for (char& c : text) c = static_cast<char>('a' + Below(random, 26));
  return text;
}

Kind RandomKind(Random& random) {
  static constexpr std::array kOften = {Kind::kIds, Kind::kStreamOfIds, Kind::kText,
                                        Kind::kStreamOfText};
  static constexpr std::array kSeldom = {Kind::kTooLong, Kind::kNoModel, Kind::kNoRequest};
  if (Chance(random, 16)) return kSeldom[static_cast<size_t>(Below(random, 3))];
  return kOften[static_cast<size_t>(Below(random, 4))];
}

std::string LlmJson(const AskedRequest& asked) {
  const auto tensor = [](const char* name, const char* type, size_t size, const std::string& data) {
    return fmt::format(R"({{"name":"{}","datatype":"{}","shape":[1,{}],"data":[{}]}})", name, type,
                       size, data);
  };
  const std::string ids = fmt::format("{}", fmt::join(asked.ids, ","));
  return fmt::format(R"({{"parameters":{{"timeout":{}}},"inputs":[{},{},{},{},{}]}})",
                     asked.timeout_us, tensor("input_ids", "INT32", asked.ids.size(), ids),
                     tensor("input_lengths", "INT32", 1, std::to_string(asked.ids.size())),
                     tensor("request_output_len", "INT32", 1, std::to_string(asked.max_tokens)),
                     tensor("end_id", "INT32", 1, std::to_string(asked.end_id)),
                     tensor("random_seed", "UINT64", 1, std::to_string(asked.seed)));
}

// Ids in one member, which is a number where it is one.
void AppendIds(const Json& value, std::vector<TokenId>& ids) {
  if (!value.is_array()) return ids.push_back(value.get<TokenId>());
  for (const Json& id : value) ids.push_back(id.get<TokenId>());
}

bool IsRefusal(int status) {
  static constexpr std::array kStatuses = {400, 404, 408, 429, 499, 500, 503, 504};
  return std::ranges::find(kStatuses, status) != kStatuses.end();
}

template <typename T>
void AddInput(::inference::ModelInferRequest& message, const char* name, const char* type,
              std::span<const T> values) {
  auto& input = *message.add_inputs();
  input.set_name(name);
  input.set_datatype(type);
  input.add_shape(1);
  input.add_shape(std::ssize(values));
  message.add_raw_input_contents(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

}  // namespace

int Below(Random& random, int n) { return static_cast<int>(random() % static_cast<uint64_t>(n)); }

AskedRequest RandomRequest(Random& random, uint64_t seed) {
  AskedRequest asked = {.kind = RandomKind(random), .seed = seed, .ids = {}, .text = {}};
  // Prompts often begin alike, so that blocks are reused.
  asked.ids.assign(static_cast<size_t>(Below(random, kMaxPromptTokens / 2)), 'p');
  asked.text.assign(asked.ids.size(), 'p');
  const int own = 1 + Below(random, kMaxPromptTokens / 2);
  for (int i = 0; i < own; ++i) asked.ids.push_back(Below(random, 256));
  asked.text += RandomText(random, own);
  asked.end_id = Chance(random, 2) ? kEndId : Below(random, 256);
  asked.max_tokens = 1 + Below(random, Chance(random, 4) ? 48 : 8);
  const bool takes_timeouts = asked.kind == Kind::kIds;
  if (takes_timeouts && Chance(random, 8)) asked.timeout_us = 1 + Below(random, 40'000);
  if (Chance(random, 64)) asked.num_padding_bytes = 70'000;
  return asked;
}

std::string HttpBytes(const AskedRequest& asked) {
  const std::string padding(asked.num_padding_bytes, ' ');
  const auto text = [&](const char* path, const std::string& prompt, bool streams) {
    return HttpPost(path, fmt::format(R"({{"text_input":"{}","max_tokens":{},"random_seed":{},)"
                                      R"("stream":{}}}{})",
                                      prompt, asked.max_tokens, asked.seed, streams, padding));
  };
  const auto control = [](const char* what) {
    return HttpPost(fmt::format("/v2/repository/models/tensorrt_llm/{}", what), "{}");
  };
  switch (asked.kind) {
    case Kind::kIds:
      return HttpPost("/v2/models/tensorrt_llm/infer", LlmJson(asked) + padding);
    case Kind::kStreamOfIds:
      return HttpPost(
          "/v2/models/tensorrt_llm/generate_stream",
          fmt::format(R"({{"input_ids":[{}],"input_lengths":{},"request_output_len":{},)"
                      R"("end_id":{},"random_seed":{},"streaming":true}}{})",
                      fmt::join(asked.ids, ","), asked.ids.size(), asked.max_tokens, asked.end_id,
                      asked.seed, padding));
    case Kind::kText:
      return text("/v2/models/ensemble/generate", asked.text, false);
    case Kind::kStreamOfText:
      return text("/v2/models/ensemble/generate_stream", asked.text, true);
    case Kind::kTooLong:
      return text("/v2/models/ensemble/generate", std::string(kTooLongBytes, 'x'), false);
    case Kind::kNoModel:
      return text("/v2/models/nobody/generate", asked.text, false);
    case Kind::kNoRequest:
      return asked.text + "\r\n\r\n";
    case Kind::kLoad:
      return control("load");
    case Kind::kUnload:
      return control("unload");
  }
  return "";
}

::inference::ModelInferRequest GrpcMessage(const AskedRequest& asked) {
  ::inference::ModelInferRequest message;
  message.set_model_name(asked.kind == Kind::kNoModel ? "nobody" : "tensorrt_llm");
  message.set_id(std::to_string(asked.seed));
  const auto length = static_cast<int32_t>(asked.ids.size());
  const bool streams = asked.is_stream();
  AddInput<int32_t>(message, "input_ids", "INT32", asked.ids);
  AddInput<int32_t>(message, "input_lengths", "INT32", {&length, 1});
  AddInput<int32_t>(message, "request_output_len", "INT32", {&asked.max_tokens, 1});
  AddInput<int32_t>(message, "end_id", "INT32", {&asked.end_id, 1});
  AddInput<uint64_t>(message, "random_seed", "UINT64", {&asked.seed, 1});
  AddInput<bool>(message, "streaming", "BOOL", {&streams, 1});
  message.add_outputs()->set_name("output_ids");
  (*message.mutable_parameters())["timeout"].set_int64_param(asked.timeout_us);
  (*message.mutable_parameters())["triton_enable_empty_final_response"].set_bool_param(true);
  return message;
}

Judgement Judge::OfIds(const AskedRequest& asked, const std::vector<TokenId>& ids) const {
  Request request;
  request.input_ids = asked.ids;
  request.max_tokens = asked.max_tokens;
  request.end_ids = {asked.end_id};
  request.sampling.seed = asked.seed;
  return ids == ExpectedOutput(request, kVocabSize).ids ? Judgement::kRight : Judgement::kWrong;
}

Judgement Judge::OfText(const AskedRequest& asked, const std::string& text) const {
  Request request;
  request.input_ids = *tokenizer_->Encode(asked.text, /*add_special_tokens=*/true);
  request.max_tokens = asked.max_tokens;
  request.end_ids = {kEndId};
  request.sampling.seed = asked.seed;
  const std::vector<TokenId> ids = ExpectedOutput(request, kVocabSize).ids;
  return text == tokenizer_->Decode(ids, /*skip_special_tokens=*/true) ? Judgement::kRight
                                                                       : Judgement::kWrong;
}

// data: JSON, an empty line, again
Judgement Judge::OfStream(const AskedRequest& asked, const std::string& body) const {
  constexpr std::string_view kBegin = "data: ";
  std::vector<TokenId> ids;
  std::string text;
  for (size_t at = 0; at < body.size();) {
    const size_t end = body.find("\n\n", at);
    if (end == std::string::npos || !body.substr(at).starts_with(kBegin)) return Judgement::kWrong;
    const Json event = Json::parse(body.substr(at + kBegin.size(), end - at - kBegin.size()));
    if (event.contains("error")) return Judgement::kRefused;
    if (event.contains("output_ids")) AppendIds(event["output_ids"], ids);
    if (event.contains("text_output")) text += event["text_output"].get<std::string>();
    at = end + 2;
  }
  return asked.kind == Kind::kStreamOfIds ? OfIds(asked, ids) : OfText(asked, text);
}

Judgement Judge::OfHttp(const AskedRequest& asked, bench::HttpAnswer& answer) const {
  if (answer.status() != 200) {
    return IsRefusal(answer.status()) ? Judgement::kRefused : Judgement::kWrong;
  }
  if (asked.is_control()) return Judgement::kRight;
  if (asked.is_stream()) return OfStream(asked, answer.body());
  const Json body = Json::parse(answer.body());
  if (asked.kind == Kind::kText) return OfText(asked, body.at("text_output").get<std::string>());
  if (asked.kind != Kind::kIds) return Judgement::kWrong;  // it should have been refused
  std::vector<TokenId> ids;
  for (const Json& output : body.at("outputs")) {
    if (output.at("name") == "output_ids") AppendIds(output.at("data"), ids);
  }
  return OfIds(asked, ids);
}

}  // namespace inflight::testing
