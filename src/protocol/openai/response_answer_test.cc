// SPDX-License-Identifier: Apache-2.0
// What is kept of an answer, to go on from.
#include "protocol/openai/response_answer.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "protocol/openai/message_answer.h"

namespace inflight::openai {
namespace {

using answer_parts::Part;
using Json = nlohmann::json;

class NoResponder final : public http_listener::HttpResponder {
 public:
  void Send(http_listener::HttpResponse) override {}
  void StartStream(int, const http_listener::Headers&) override {}
  void WriteChunk(std::string_view) override {}
  void Finish() override {}
  void OnDisconnect(std::function<void()>) override {}
  void OnSent(std::function<void()>) override {}
};

// The object of an answer that is one call with these arguments, and the message that is kept.
std::pair<Json, Json> AnswerWithCall(std::string_view arguments, bool is_cut) {
  std::pair<Json, Json> kept;
  ResponseForm form{.id = "resp_1", .model = "m", .tokenizer = nullptr};
  form.keep = [&kept](const std::string& response, const std::string& message) {
    kept = {Json::parse(response), Json::parse(message)};
    return true;
  };
  const auto writer = WriteResponse(std::move(form), std::make_shared<NoResponder>())(Started{});
  writer->Begin({});
  writer->Open(Part::Kind::kCall, "f");
  writer->Append(arguments);
  writer->Close(is_cut);
  writer->End({.reason = is_cut ? "length" : "tool_calls", .stop_text = {}, .usage = {}});
  return kept;
}

TEST(ResponseAnswer, ACallIsKeptAsItWasMade) {
  const auto [response, message] = AnswerWithCall(R"({"a": 1})", /*is_cut=*/false);
  EXPECT_EQ(response["output"][0]["arguments"], R"({"a": 1})");
  EXPECT_EQ(message["tool_calls"][0]["function"]["arguments"], R"({"a": 1})");
  EXPECT_EQ(message["tool_calls"][0]["id"], response["output"][0]["call_id"]);
}

// The answer tells what there is of it; templates take objects.
TEST(ResponseAnswer, AConversationGoesOnFromACallThatWasCut) {
  for (const char* arguments : {R"({"a": "No)", "", "[1]"}) {
    const auto [response, message] = AnswerWithCall(arguments, /*is_cut=*/true);
    EXPECT_EQ(response["output"][0]["arguments"], arguments);
    EXPECT_EQ(response["status"], "incomplete");
    EXPECT_EQ(message["tool_calls"][0]["function"]["arguments"], "{}");
    EXPECT_EQ(message["tool_calls"][0]["id"], response["output"][0]["call_id"]);
  }
}

}  // namespace
}  // namespace inflight::openai
