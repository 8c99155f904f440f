// SPDX-License-Identifier: Apache-2.0
#include "protocol/openai/names_elsewhere.h"

#include <algorithm>
#include <array>
#include <vector>

#include "config/schema.h"
#include "protocol/openai/openai_handler.h"

namespace inflight::openai {
namespace {

// The first of `here` that bodies of the kind have is meant.
struct MemberName {
  std::string_view name;
  std::array<std::string_view, 3> here;
};
constexpr std::array<std::string_view, 3> kLengthNames = {"max_tokens", "max_output_tokens"};
// clang-format off
constexpr MemberName kMemberNames[] = {
    {"max_tokens", kLengthNames},
    {"max_completion_tokens", kLengthNames},
    {"max_output_tokens", kLengthNames},
    {"max_new_tokens", kLengthNames},
    {"n_predict", kLengthNames},
    {"num_predict", kLengthNames},
    {"stop", {"stop_sequences"}},
    {"stop_sequences", {"stop"}},
    {"stop_words", {"stop", "stop_sequences"}},
    {"repeat_penalty", {"repetition_penalty"}},
    {"messages", {"input", "prompt"}},
    {"prompt", {"messages", "input"}},
    {"input", {"messages", "prompt"}},
    {"inputs", {"messages", "input", "prompt"}},
    {"text_input", {"prompt", "messages", "input"}},
    {"content", {"prompt"}},
    {"grammar", {"guided_grammar"}},
    {"regex", {"guided_regex"}},
    {"json_schema", {"response_format", "text", "output_config"}},
    {"format", {"response_format", "text", "output_config"}},
    {"response_format", {"text", "output_config"}},
    {"reasoning", {"reasoning_effort", "thinking"}},
    {"reasoning_effort", {"reasoning", "output_config"}},
    {"thinking", {"reasoning_effort", "reasoning"}},
    {"enable_thinking", {"chat_template_kwargs"}},
    {"instructions", {"system", "messages"}},
    {"system", {"instructions", "messages"}},
};
// clang-format on

struct Remedy {
  std::string_view name;
  std::string_view remedy;
};
constexpr Remedy kMemberRemedies[] = {
    {"extra_body", "the client `openai` puts its members into the body; put them there"},
    {"options", "its members stand in the body itself here"},
    {"keep_alive", "models stay loaded; leave it out"},
    {"cache_prompt", "equal beginnings are found by themselves; leave it out"},
};

bool Has(BodyKinds kind, std::string_view name) {
  return std::ranges::any_of(BodyFields(), [&](const BodyField& field) {
    return field.name == name && (field.kinds & kind) != 0 && field.read != nullptr;
  });
}

constexpr std::string_view kChatPath = "/v1/chat/completions";
// Paths outside of /v1/, in whole or, where they end with '/', as a beginning.
constexpr Remedy kPaths[] = {
    {"/chat/completions", kChatPath},
    {"/completions", "/v1/completions"},
    {"/completion", "/v1/completions"},
    {"/responses", "/v1/responses"},
    {"/messages", "/v1/messages"},
    {"/embeddings", "/v1/embeddings"},
    {"/models", "/v1/models"},
    {"/apply-template", "/tokenize, which takes messages, too"},
    {"/props", "/v1/models"},
    {"/api/chat", kChatPath},
    {"/api/generate", "/v1/completions"},
    {"/api/tags", "/v1/models"},
    {"/api/show", "/v1/models"},
    {"/api/ps", "/v1/models"},
    {"/api/version", "/version"},
    {"/api/", "/v1, as OpenAI's API"},
    {"/openai/", "/v1, without deployments in the path"},
};

const Remedy* FindPath(std::string_view path) {
  if (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  const auto* const found = std::ranges::find_if(kPaths, [&](const Remedy& row) {
    return row.name.ends_with('/') ? path.starts_with(row.name) : path == row.name;
  });
  return found == std::end(kPaths) ? nullptr : found;
}

}  // namespace

std::optional<std::string> MemberElsewhere(std::string_view name, BodyKinds kind) {
  constexpr size_t kMaxComparedBytes = 64;
  if (name.size() > kMaxComparedBytes) return std::nullopt;
  const auto meant = [](std::string_view here) {
    return "did you mean '" + std::string(here) + "'?";
  };
  for (const MemberName& row : kMemberNames) {
    if (row.name != name) continue;
    for (const std::string_view here : row.here)
      if (!here.empty() && Has(kind, here)) return meant(here);
  }
  for (const Remedy& row : kMemberRemedies)
    if (row.name == name) return std::string(row.remedy);
  std::vector<std::string> known;
  for (const BodyField& field : BodyFields())
    if ((field.kinds & kind) != 0) known.emplace_back(field.name);
  if (const auto nearest = config::Nearest(name, known)) return meant(*nearest);
  return std::nullopt;
}

bool IsPathElsewhere(std::string_view path) { return FindPath(path) != nullptr; }

std::string PathElsewhere(std::string_view path) {
  if (path.starts_with("/v1/v1/")) return "the base URL of the client and its path both have /v1";
  if (const Remedy* found = FindPath(path))
    return "here it is " + std::string(found->remedy) +
           "; the base URL of clients of OpenAI's API ends with /v1";
  std::vector<std::string> known = {"/v1/messages", "/v1/messages/count_tokens"};
  for (const Route& route : Routes())
    if (route.path.find('{') == std::string_view::npos) known.emplace_back(route.path);
  constexpr size_t kAlikeBytes = 8;  // "/v1/" and four letters: moderations are no completions
  const auto nearest = config::Nearest(path, known);
  if (nearest && path.starts_with(std::string_view(*nearest).substr(0, kAlikeBytes)))
    return "did you mean " + *nearest + "?";
  return "the API has /v1/models, /v1/chat/completions, /v1/completions, /v1/responses and "
         "/v1/messages";
}

}  // namespace inflight::openai
