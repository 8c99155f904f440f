// SPDX-License-Identifier: Apache-2.0
#include "protocol/openai/response_input.h"

#include <gtest/gtest.h>

#include <string>

namespace inflight::openai {
namespace {

// The document of a body with these members, or the error; `before`: of a former response.
std::string Document(const std::string& members, const std::string& before = "") {
  const std::string body = "{" + members + "}";  // that the members are views into
  auto asked = ParseBody(body, kResponse);
  if (!asked.ok()) return asked.status().message();
  const auto input = ReadResponseInput(*asked, before);
  return input.ok() ? input->document : input.status().message();
}

TEST(ResponseInput, ATurnOfTheAssistantIsOneMessage) {
  EXPECT_EQ(Document(R"("input": [
      {"role": "user", "content": "a"},
      {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "short"}],
       "content": [{"type": "reasoning_text", "text": "hm"}]},
      {"type": "message", "role": "assistant", "id": "m", "status": "completed",
       "content": [{"type": "output_text", "text": "b", "annotations": [], "logprobs": []}]},
      {"type": "function_call", "id": "f", "call_id": "1", "name": "g", "arguments": "{\"x\": 1}"},
      {"type": "function_call", "call_id": "2", "name": "h", "arguments": ""},
      {"type": "function_call_output", "call_id": "1", "output": "c"},
      {"type": "function_call_output", "call_id": "2",
       "output": [{"type": "input_text", "text": "d"}, {"type": "input_text", "text": "e"}]}])"),
            R"({"messages":[{"role":"user","content":"a"},)"
            R"({"role":"assistant","content":"b","reasoning_content":"hm","tool_calls":[)"
            R"({"id":"1","type":"function","function":{"name":"g","arguments":"{\"x\": 1}"}},)"
            R"({"id":"2","type":"function","function":{"name":"h","arguments":""}}]},)"
            R"({"role":"tool","content":"c","tool_call_id":"1"},)"
            R"({"role":"tool","content":"d\ne","tool_call_id":"2"}]})");
  EXPECT_EQ(Document(R"("input": [{"role": "assistant", "content": "a"},
                                  {"role": "assistant", "content": "b"}])"),
            R"({"messages":[{"role":"assistant","content":"a"},)"
            R"({"role":"assistant","content":"b"}]})");
}

TEST(ResponseInput, GoesOnFromAFormerConversationWithItsOwnInstructions) {
  const std::string before = R"({"role":"user","content":"a"},{"role":"assistant","content":"b"})";
  EXPECT_EQ(Document(R"("input": "c", "instructions": "Be brief.")", before),
            R"({"messages":[{"role":"system","content":"Be brief."},)" + before +
                R"(,{"role":"user","content":"c"}]})");
  EXPECT_EQ(Document(R"("input": [])", before), R"({"messages":[)" + before + "]}");
  EXPECT_EQ(Document(R"("input": [])"), "input: is empty");
}

TEST(ResponseInput, ToolsAreFunctionsOfChat) {
  EXPECT_EQ(Document(R"("input": "a", "tools": [{"type": "function", "name": "f", "strict": false,
                        "parameters": {"type": "object"}, "description": null}],
                        "tool_choice": {"type": "function", "name": "f"})"),
            R"({"messages":[{"role":"user","content":"a"}],)"
            R"("tools":[{"type":"function","function":{"name":"f","strict":false,)"
            R"("parameters":{"type": "object"}}}],)"
            R"("tool_choice":{"type":"function","function":{"name":"f"}}})");
  EXPECT_EQ(Document(R"("input": "a", "tools": [{"type": "mcp"}])"),
            "tools[0].type: got 'mcp': this server runs no tools; those of the client are "
            "functions");
}

TEST(ResponseInput, ErrorsOfChatHaveTheNamesOfThisApi) {
  const auto named = [](std::string_view field) {
    return ByOwnNames(ResponseFieldNames(), InvalidArgument(field, "is wrong")).message();
  };
  EXPECT_EQ(named("tools[1].function.name"), "tools[1].name: is wrong");
  EXPECT_EQ(named("messages[3].content"), "input: is wrong");
  EXPECT_EQ(named("max_tokens"), "max_output_tokens: is wrong");
  EXPECT_EQ(named("reasoning_effort"), "reasoning.effort: is wrong");
}

}  // namespace
}  // namespace inflight::openai
