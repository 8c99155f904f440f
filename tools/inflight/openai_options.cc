// SPDX-License-Identifier: Apache-2.0
#include "openai_options.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "answer_parts/call_formats.h"
#include "answer_parts/reasoning_tags.h"
#include "base/log_table.h"
#include "inflight/chat_template.h"
#include "protocol/openai/served_models.h"
#include "serving/repository/repository_layout.h"

namespace inflight::tool {

using config::Range;

void AddOpenAiOptions(config::Schema<ServeOptions>& schema) {
  schema.Section("OpenAI");
  schema.Add(
      "allow_openai", [](ServeOptions& o) -> auto& { return o.allow_openai; },
      "The HTTP port answers OpenAI's API too (/v1/models, /v1/chat/completions, /v1/completions, "
      "/v1/responses), and Anthropic's (/v1/messages).");
  schema.Add(
      "openai_port", [](ServeOptions& o) -> auto& { return o.openai_port; },
      "Port that answers that API alone, 9000 in Triton's launcher; 0 picks a free one.",
      Range(0, 65535));
  schema.Add(
      "openai_address", [](ServeOptions& o) -> auto& { return o.openai.address; }, "Its address.");
  schema.Add(
      "openai_thread_count", [](ServeOptions& o) -> auto& { return o.openai.threads; },
      "Its I/O threads; 0 is 1 to 4 by cores.", Range(0, 128));
  schema.Add(
      "served_model_name", [](ServeOptions& o) -> auto& { return o.served_model_name; },
      "Name of the model of DIR in that API; repeatable. By default the folder's, or ORG/NAME of "
      "the hub.");
  schema.Add(
      "chat_template", [](ServeOptions& o) -> auto& { return o.server.chat_template; },
      "File with a chat template, instead of the models' own, or the name of a family's: " +
          ChatTemplate::Names() + ".");
  schema.Add(
      "tool_call_format", [](ServeOptions& o) -> auto& { return o.message_formats.tool_calls; },
      "How models write calls of tools: auto (by their chat template), none, or " +
          answer_parts::CallFormatNames() + ".");
  schema.Add(
      "reasoning_format", [](ServeOptions& o) -> auto& { return o.message_formats.reasoning; },
      "How models mark their reasoning: auto (by their chat template), none (it is content), or " +
          answer_parts::ReasoningTagNames() + ".");
  schema.Add(
      "stored_responses_byte_size",
      [](ServeOptions& o) -> auto& { return o.stored_responses_byte_size; },
      "Bytes of answers of /v1/responses that are kept for their clients, of the memory of "
      "requests; what was not used for the longest time makes room, and 0 keeps none.",
      Range(0, int64_t{1} << 40));
  schema.Add(
      "stored_responses_secs", [](ServeOptions& o) -> auto& { return o.stored_responses_secs; },
      "Seconds that an answer is kept which nobody uses.", Range(1, 365 * 86400));
}

std::vector<openai::ModelAlias> ModelAliases(const ServeOptions& options) {
  std::vector<openai::ModelAlias> aliases;
  if (options.server.model_dirs.empty() ||
      serving::FindRepository(options.server.model_dirs.front()))
    return aliases;
  constexpr char kEnsemble[] = "ensemble";
  for (const std::string& name : options.served_model_name) aliases.push_back({name, kEnsemble});
  if (!aliases.empty()) return aliases;
  const std::string& said = options.model_arguments.front();
  std::error_code error;
  std::string name = said;
  if (std::filesystem::exists(said, error)) {
    std::filesystem::path path = std::filesystem::weakly_canonical(said, error);
    if (path.parent_path().filename() == "snapshots") {  // of the hub's cache: models--ORG--NAME
      path = path.parent_path().parent_path();
    }
    name = path.extension() == ".gguf" ? path.stem().string() : path.filename().string();
  }
  constexpr std::string_view kHub = "models--";
  if (name.starts_with(kHub)) {
    name.erase(0, kHub.size());
    if (const size_t dashes = name.find("--"); dashes != std::string::npos)
      name.replace(dashes, 2, "/");
  }
  aliases.push_back({name, kEnsemble});
  return aliases;
}

void LogHowToAsk(serving::Server& server, const ServeOptions& options, int http_port,
                 int openai_port) {
  const bool is_own = openai_port > 0;
  if (!is_own && (!options.allow_http || !options.allow_openai)) return;
  const auto models = openai::ServedModels(server, ModelAliases(options)).List();
  if (models.empty()) return;
  const std::string& address = is_own ? options.openai.address : options.http.address;
  const bool is_everywhere = address == kEveryInterface || address == "::";
  const std::string scheme = options.http.tls.is_on() ? "https" : "http";
  const std::string url = fmt::format(
      "{}://{}:{}", scheme,
      is_everywhere ? "127.0.0.1"
                    : (address.find(':') != std::string::npos ? "[" + address + "]" : address),
      is_own ? openai_port : http_port);
  const std::string name = nlohmann::json(models.front().name).dump();
  const bool has_template = models.front().text->chat_template.has_value();
  const std::string_view key =
      options.policy->asks_for_keys() ? "-H 'Authorization: Bearer KEY' " : "";
  const std::string body =
      fmt::format("{{\"model\": {}, {}, \"max_tokens\": 32}}", name,
                  has_template ? R"("messages": [{"role": "user", "content": "Hello"}])"
                               : R"("prompt": "Hello")");
  const std::string page =
      !is_own && options.allow_page ? "\nor open " + url + "/ in a browser" : "";
  logging::Table("Serving " + models.front().name + " at " + url + "; try:",
                 fmt::format("curl {}/v1/{} {}-d '{}'{}", url,
                             has_template ? "chat/completions" : "completions", key, body, page));
}

}  // namespace inflight::tool
