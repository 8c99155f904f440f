// SPDX-License-Identifier: Apache-2.0
#include "chat_input.h"

#include <string_view>
#include <utility>

namespace inflight::tool {
namespace {

constexpr std::string_view kQuotes = R"(""")";
constexpr char kPrompt[] = "> ";
constexpr char kNextPrompt[] = "... ";

}  // namespace

Result<ChatInput> ReadChatInput(LineEditor& editor) {
  ChatInput input;
  std::string line;
  input.event = editor.Next(kPrompt, line);
  if (input.event != LineEvent::kLine) return input;
  editor.Remember(line);
  if (!line.starts_with(kQuotes)) {
    input.text = std::move(line);
    return input;
  }
  input.is_quoted = true;
  line.erase(0, kQuotes.size());
  bool is_first = true;
  while (!line.ends_with(kQuotes)) {
    if (!is_first || !line.empty()) input.text += line + "\n";  // not the line of """ alone
    is_first = false;
    input.event = editor.Next(kNextPrompt, line);
    if (input.event == LineEvent::kInterrupted) return input;
    if (input.event == LineEvent::kEnd)
      return InvalidArgument(R"(the input ends inside a text that """ began)");
    editor.Remember(line);
  }
  line.erase(line.size() - kQuotes.size());
  input.text += line;
  if (line.empty() && input.text.ends_with('\n')) input.text.pop_back();
  return input;
}

}  // namespace inflight::tool
