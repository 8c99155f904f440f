// SPDX-License-Identifier: Apache-2.0
// Any text as what a model wrote, read in each format for reasoning and calls of tools: its parts
// are the same however the text is cut. A client chooses such texts by its prompt.
//
// The first byte chooses the format, the second the tags, the third where the answer begins and a
// size of pieces.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "answer_parts/answer_parser.h"

namespace {

using namespace inflight::answer_parts;  // NOLINT: a fuzzer's main file

// Of "deepseek, hermes".
std::vector<std::string> Names(std::string_view list) {
  std::vector<std::string> names;
  while (!list.empty()) {
    names.emplace_back(list.substr(0, list.find(',')));
    list.remove_prefix(std::min(list.size(), names.back().size() + 2));
  }
  return names;
}

std::vector<const CallFormat*> AllFormats() {
  std::vector<const CallFormat*> all = {nullptr};
  for (const std::string& name : Names(CallFormatNames())) all.push_back(*CallFormatNamed(name));
  return all;
}

std::vector<const ReasoningTags*> AllTags() {
  std::vector<const ReasoningTags*> all = {nullptr};
  for (const std::string& name : Names(ReasoningTagNames()))
    all.push_back(*ReasoningTagsNamed(name));
  return all;
}

std::vector<Part> PartsOf(const AnswerFormat& format, BeginsIn begin, std::string_view text,
                          size_t piece) {
  AnswerParser parser(format, begin);
  Parts parts;
  for (size_t at = 0; at < text.size(); at += piece) parser.Add(text.substr(at, piece), parts);
  parser.Finish(parts);
  return parts.items();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto& formats = *new auto(AllFormats());
  static const auto& tags = *new auto(AllTags());
  static const auto& names = *new auto(
      std::make_shared<const FunctionNames>(FunctionNames{{"add", {}}, {"get_weather", {"city"}}}));
  constexpr size_t kBefore = 3;
  if (size < kBefore) return 0;
  const AnswerFormat format = {.calls = formats[data[0] % formats.size()],
                               .names = names,
                               .reasoning = tags[data[1] % tags.size()],
                               .one_call = (data[0] & 128) != 0,
                               .is_guided = (data[1] & 128) != 0};
  const auto begin = static_cast<BeginsIn>(data[2] % 3);
  const std::string_view text(reinterpret_cast<const char*>(data + kBefore), size - kBefore);
  const std::vector<Part> whole = PartsOf(format, begin, text, std::max<size_t>(text.size(), 1));
  for (const size_t piece : {size_t{1}, size_t{2} + data[2] / 4})
    if (PartsOf(format, begin, text, piece) != whole) abort();
  return 0;
}
