// SPDX-License-Identifier: Apache-2.0
#include "builder/tensorrt_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <utility>

#include "artifact/checkpoint.h"
#include "artifact/engine_file.h"
#include "artifact/json_file.h"

namespace inflight::builder {
namespace {

using nlohmann::json;

constexpr std::string_view kEngineSuffix = "rank0.engine";

// rank0.engine, or gpt_float16_tp1_rank0.engine before 0.8, that is none of ours.
bool HasForeignEngine(const std::filesystem::path& dir) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(dir, error)) {
    if (entry.path().filename().string().ends_with(kEngineSuffix))
      return !artifact::IsEngineFile(entry.path());
  }
  return false;
}

// The object under `name`; an empty one where there is none.
json ObjectIn(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_object() ? *found : json::object();
}

int IntIn(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_number_integer() ? found->get<int>() : 0;
}

std::string TextIn(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// Since 0.8: {"version", "pretrained_config", "build_config"}.
TensorRtEngine FromConfig(const json& config) {
  const json model = ObjectIn(config, "pretrained_config");
  const json build = ObjectIn(config, "build_config");
  TensorRtEngine engine{.release = TextIn(config, "version"),
                        .architecture = TextIn(model, "architecture"),
                        .dtype = TextIn(model, "dtype"),
                        .num_ranks = std::max(1, IntIn(ObjectIn(model, "mapping"), "world_size")),
                        .max_batch_size = IntIn(build, "max_batch_size"),
                        .max_input_len = IntIn(build, "max_input_len"),
                        .max_seq_len = IntIn(build, "max_seq_len"),
                        .max_beam_width = IntIn(build, "max_beam_width"),
                        .max_prompt_rows = IntIn(build, "max_prompt_embedding_table_size")};
  const int max_output_len = IntIn(build, "max_output_len");  // up to 0.10
  if (engine.max_seq_len == 0 && max_output_len > 0)
    engine.max_seq_len = engine.max_input_len + max_output_len;
  return engine;
}

// Before 0.8: {"builder_config", "plugin_config"}.
TensorRtEngine FromBuilderConfig(const json& build) {
  TensorRtEngine engine{
      .architecture = TextIn(build, "name"),
      .dtype = TextIn(build, "precision"),
      .num_ranks = std::max(1, IntIn(build, "tensor_parallel")) *
                   std::max(1, IntIn(build, "pipeline_parallel")),
      .max_batch_size = IntIn(build, "max_batch_size"),
      .max_input_len = IntIn(build, "max_input_len"),
      .max_beam_width = IntIn(build, "max_beam_width"),
      .max_prompt_rows = IntIn(build, "max_prompt_embedding_table_size"),
  };
  const int max_output_len = IntIn(build, "max_output_len");
  if (max_output_len > 0) engine.max_seq_len = engine.max_input_len + max_output_len;
  return engine;
}

}  // namespace

std::string TensorRtEngine::Name() const {
  return fmt::format("engine of TensorRT-LLM {}{}{}", release.empty() ? "before 0.8" : release,
                     architecture.empty() ? "" : fmt::format(", {} {}", architecture, dtype),
                     num_ranks > 1 ? fmt::format(", {} ranks", num_ranks) : "");
}

std::string TensorRtEngine::RebuildCommand() const {
  std::string command = "inflight build --checkpoint-dir CHECKPOINT --output-dir ENGINE";
  for (const auto& [flag, value] : {std::pair{"--max-batch-size", max_batch_size},
                                    {"--max-input-len", max_input_len},
                                    {"--max-seq-len", max_seq_len},
                                    {"--max-beam-width", max_beam_width},
                                    {"--max-prompt-embedding-table-size", max_prompt_rows}}) {
    if (value > 0) command += fmt::format(" {} {}", flag, value);
  }
  return command;
}

std::optional<TensorRtEngine> FindTensorRtEngine(const std::filesystem::path& dir) {
  const auto config = artifact::ReadJsonFile(dir / artifact::kConfigFile);
  if (!config.ok() || !HasForeignEngine(dir)) return std::nullopt;
  if (config->contains("builder_config"))
    return FromBuilderConfig(ObjectIn(*config, "builder_config"));
  // Where there is a format, the file beside it is a damaged engine of ours.
  if (config->contains("pretrained_config") && !config->contains("format"))
    return FromConfig(*config);
  return std::nullopt;
}

Status RefuseTensorRtEngine(const std::filesystem::path& dir) {
  const auto engine = FindTensorRtEngine(dir);
  if (!engine) return Status::Ok();
  return Unimplemented(
      fmt::format("{}: an {} cannot be read; build it anew from its checkpoint or its Hugging Face "
                  "model: {}",
                  dir.string(), engine->Name(), engine->RebuildCommand()));
}

}  // namespace inflight::builder
