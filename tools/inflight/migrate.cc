// SPDX-License-Identifier: Apache-2.0
// inflight migrate: what of a deployment of the TensorRT-LLM backend runs here as it is, which
// engines need building anew and how, and what changes for clients.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "builder/builder.h"
#include "builder/tensorrt_engine.h"
#include "command_line.h"
#include "commands.h"
#include "contract/llm_inputs.h"
#include "contract/text_inputs.h"
#include "planned_repository.h"
#include "serving/configuration/model_config.h"
#include "serving/repository/repository_layout.h"

namespace inflight::tool {
namespace {

namespace fs = std::filesystem;
using contract::KeyEffect;
using serving::ModelEntry;

const Usage kMigrateUsage = {"inflight migrate REPOSITORY",
                             "Reports on a model repository of the TensorRT-LLM backend: which "
                             "models run as they are, which "
                             "engines need a\nnew build and by which command, which keys have no "
                             "effect, and what changes for "
                             "clients. Changes nothing."};

struct MigrateOptions {
  std::string device = "auto";
};

config::Schema<MigrateOptions> MakeMigrateSchema() {
  config::Schema<MigrateOptions> schema;
  schema.Section("Migrate");
  schema.Add(
      "device", [](MigrateOptions& o) -> auto& { return o.device; },
      "Where models would run: cpu, cuda (the first GPU), cuda:N, or auto.");
  return schema;
}

struct FoundEngine {
  fs::path dir;
  builder::TensorRtEngine engine;
};

// In the model's versions and where its configuration leads, and one level below.
std::vector<FoundEngine> FindTensorRtEngines(const fs::path& model_dir,
                                             const ::inference::ModelConfig* config) {
  std::vector<fs::path> places = serving::Subdirectories(model_dir);
  for (const char* key : {"gpt_model_path", "engine_dir"}) {
    if (config == nullptr) continue;
    const auto path = serving::FindParameter(*config, key);
    if (path) places.push_back(serving::ResolvePath(*path, model_dir));
  }
  const size_t num_top = places.size();
  for (size_t i = 0; i < num_top; ++i) {
    const std::vector<fs::path> below = serving::Subdirectories(places[i]);
    places.insert(places.end(), below.begin(), below.end());
  }
  std::vector<FoundEngine> found;
  for (const fs::path& place : places) {
    const auto is_same = [&place](const FoundEngine& other) {
      std::error_code error;
      return fs::equivalent(other.dir, place, error);
    };
    if (std::ranges::any_of(found, is_same)) continue;
    if (auto engine = builder::FindTensorRtEngine(place))
      found.push_back({place, std::move(*engine)});
  }
  return found;
}

// Whether a request may only have it with a value that asks for nothing.
bool IsRefusedInput(const std::string& name) {
  if (const contract::LlmInput* input = contract::FindLlmInput(name))
    return contract::IsRefusedWhereUsed(*input);
  const contract::TextInput* input = contract::FindTextInput(name);
  if (input == nullptr) return false;
  using enum contract::InputRole;
  if (input->role != kLlm) return input->role == kUnsupported;
  const contract::LlmInput* of_llm = contract::FindLlmInput(input->llm_name);
  return of_llm != nullptr && contract::IsRefusedWhereUsed(*of_llm);
}

// The lines of what clients of a model meet. `engines` are those of the model itself.
std::vector<std::string> ClientLines(const ::inference::ModelConfig& config,
                                     const std::vector<EnginePlan>& engines) {
  std::vector<std::string> lines;
  std::vector<std::string> refused;
  for (const auto& input : config.input())
    if (IsRefusedInput(input.name())) refused.push_back(input.name());
  if (!refused.empty())
    lines.push_back(
        fmt::format("declared, and refused where a request uses it: {}", fmt::join(refused, ", ")));
  for (const EnginePlan& engine : engines) {
    const auto described = builder::Describe(engine.dir);
    if (!described.ok() || described->config.end_ids.size() < 2) continue;
    lines.push_back(
        fmt::format("text ends at each of the model's end ids {}, not at the tokenizer's alone; "
                    "end_id of a request says which one",
                    fmt::join(described->config.end_ids, ", ")));
  }
  return lines;
}

struct Tally {
  size_t num_models = 0;
  size_t num_running = 0;
};

void PrintKeys(const serving::Repository& repository, const ModelEntry& entry) {
  for (const serving::ModelReport& report : repository.reports()) {
    if (report.model != entry.name || report.version != entry.version) continue;
    for (const contract::KeyLine& line : report.keys) {
      const bool is_written = line.source == contract::KeySource::kFile;
      if (!is_written || line.effect == KeyEffect::kHonoured) continue;
      fmt::print("  key {} = {}: {}: {}\n", line.key, line.value,
                 contract::KeyEffectName(line.effect), line.reason);
    }
  }
}

void PrintMigration(const PlannedRepository& planned, const ModelEntry& entry, const fs::path& root,
                    Tally& tally) {
  const fs::path dir = entry.dir.empty() ? root / entry.name : entry.dir;
  std::optional<::inference::ModelConfig> config;
  if (const auto text = ReadFile(dir / serving::kConfigFile); text.ok()) {
    if (auto parsed = serving::ParseModelConfig(*text); parsed.ok())
      config = std::move(parsed->config);
  }
  ++tally.num_models;
  const std::string version = entry.version.empty() ? "" : " version " + entry.version;
  const auto engines = FindTensorRtEngines(dir, config ? &*config : nullptr);
  if (entry.model != nullptr) {
    ++tally.num_running;
    fmt::print("\nmodel {}{}: runs as it is\n", entry.name, version);
  } else {
    fmt::print("\nmodel {}{}: does not run yet\n", entry.name, version);
    if (engines.empty()) fmt::print("  because {}\n", serving::ReasonText(entry.status));
  }
  for (const FoundEngine& found : engines) {
    fmt::print(
        "  engine {}: {}, needs a new build\n"
        "    {}\n"
        "    where CHECKPOINT is its checkpoint or its Hugging Face model\n",
        found.dir.string(), found.engine.Name(), found.engine.RebuildCommand());
  }
  PrintKeys(*planned.repository, entry);
  if (!config) return;
  std::vector<EnginePlan> of_model;
  std::ranges::copy_if(*planned.engines, std::back_inserter(of_model), [&](const EnginePlan& plan) {
    return plan.owner == entry.name + "/" + entry.version;
  });
  for (const std::string& line : ClientLines(*config, of_model))
    fmt::print("  clients: {}\n", line);
}

Status Migrate(const MigrateOptions& options, std::span<const std::string> positionals) {
  ASSIGN_OR_RETURN(const std::string argument,
                   OnlyPositional(kMigrateUsage, positionals, "model repository"));
  if (!FileExists(argument)) return NotFound(argument + ": no such directory");
  const auto root = serving::FindRepository(argument);
  if (!root)
    return InvalidArgument(argument +
                           ": no model repository: neither it nor its only sub-directory has a "
                           "directory with a config.pbtxt; give the directory above those of the "
                           "models");
  logging::SetLevel(logging::Level::kError);  // the report goes to standard output
  OpenOptions open;
  open.device = options.device;
  ASSIGN_OR_RETURN(const PlannedRepository planned, PlanRepository(argument, open));
  Tally tally;
  fmt::print("{}: model repository\n", root->string());
  for (const ModelEntry& entry : planned.repository->entries())
    PrintMigration(planned, entry, *root, tally);
  fmt::print("\n{} of {} models run as they are\n", tally.num_running, tally.num_models);
  if (tally.num_running == tally.num_models) {
    fmt::print("start: tritonserver --model-repository={}\n", root->string());
    return Status::Ok();
  }
  return FailedPrecondition(fmt::format("{} of {} models do not run yet; what each needs is above",
                                        tally.num_models - tally.num_running, tally.num_models));
}

}  // namespace

int MigrateMain(Args args) { return RunCommand(args, kMigrateUsage, MakeMigrateSchema(), Migrate); }

Manual MigrateManual() {
  return {
      kMigrateUsage, MakeMigrateSchema().options(),
      "0 where all of it runs as it is; 1 where something does not, or after an error, which one "
      "line on standard error describes."};
}

}  // namespace inflight::tool
