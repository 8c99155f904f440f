// SPDX-License-Identifier: Apache-2.0
// inflight list and inflight rm: the models on this machine's disk.
#include "local_models.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <vector>

#include "artifact/hub_cache.h"
#include "artifact/json_file.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "builder/builder.h"
#include "command_line.h"
#include "commands.h"
#include "gguf/file.h"
#include "hub/local_models.h"
#include "interrupt.h"

namespace inflight::tool {
namespace {

using nlohmann::json;

const Usage kListUsage = {
    "inflight list [--json]",
    "Lists the models that `pull` and others downloaded into the Hugging Face cache, and what was "
    "converted or built into\n"
    "$XDG_DATA_HOME/inflight/models, else ~/.local/share/inflight/models: each name is one that "
    "`serve`, `run` and `chat` take."};

const Usage kRmUsage = {
    "inflight rm NAME... [--yes]",
    "Removes models that `inflight list` lists from the disk, with all of their revisions. Asks "
    "before, unless --yes is given."};

struct ListOptions {
  bool json = false;
};

struct RmOptions {
  bool yes = false;
};

config::Schema<ListOptions> MakeListSchema() {
  config::Schema<ListOptions> schema;
  schema.Section("List");
  schema.Add(
      "json", [](ListOptions& o) -> auto& { return o.json; },
      "Prints JSON: objects with name, folder, bytes, family and form.", config::Switch());
  return schema;
}

config::Schema<RmOptions> MakeRmSchema() {
  config::Schema<RmOptions> schema;
  schema.Section("Rm");
  schema.Add(
      "yes", [](RmOptions& o) -> auto& { return o.yes; }, "Does not ask.", config::Switch());
  schema.Alias("-y", "yes");
  return schema;
}

std::string GgufFamily(const std::filesystem::path& path) {
  const auto file = MappedFile::Open(path);
  if (!file.ok()) return {};
  const auto parsed = gguf::Parse(file->bytes(), path.string());
  if (!parsed.ok()) return {};
  const auto family = parsed->metadata.Text("general.architecture");
  return family.ok() ? std::string(family->value_or("")) : std::string();
}

std::string ConfigFamily(const std::filesystem::path& dir) {
  const auto config = artifact::ReadJsonFile(dir / "config.json");
  if (!config.ok()) return {};
  const auto text = [](const json& object, const char* name) {
    const auto found = object.find(name);
    return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  if (const auto inner = config->find("pretrained_config");
      inner != config->end() && inner->is_object())
    return text(*inner, "architecture");
  const auto names = config->find("architectures");
  if (names != config->end() && names->is_array() && !names->empty() && (*names)[0].is_string())
    return (*names)[0].get<std::string>();
  const std::string family = text(*config, "architecture");
  return family.empty() ? text(*config, "model_type") : family;
}

Status RunList(const ListOptions& options, std::span<const std::string> positionals) {
  RETURN_IF_ERROR(NoPositionals(kListUsage, positionals));
  const auto models = hub::ListLocalModels(artifact::ProcessEnvironment());
  json array = json::array();
  std::vector<std::vector<std::string>> rows = {{"NAME", "SIZE", "FAMILY", "FORM", "FOLDER"}};
  for (const hub::LocalModel& model : models) {
    const ModelForm form = FormOf(model.folder);
    array.push_back({{"name", model.name},
                     {"folder", model.folder.string()},
                     {"bytes", model.bytes},
                     {"family", form.family},
                     {"form", form.form}});
    rows.push_back(
        {model.name, SizeText(model.bytes), form.family, form.form, model.folder.string()});
  }
  if (options.json) {
    fmt::print("{}\n", array.dump(1, ' ', false, json::error_handler_t::replace));
    return Status::Ok();
  }
  std::vector<size_t> widths(rows[0].size());
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i)
      line += fmt::format("{:<{}}", row[i], i + 1 < row.size() ? widths[i] + 2 : 0);
    fmt::print("{}\n", line);
  }
  if (models.empty())
    std::fputs("no model is here; `inflight pull org/name` downloads one\n", stderr);
  return Status::Ok();
}

// Whether a person says yes; kFailedPrecondition where there is none to ask.
Result<bool> IsConfirmed(const hub::LocalModel& model) {
  if (isatty(STDIN_FILENO) != 1)
    return FailedPrecondition(model.name + ": nobody can be asked; --yes removes it");
  fmt::print("remove {} ({}, {})? [y/N] ", model.name, SizeText(model.bytes),
             model.folder.string());
  const InterruptScope interrupts;
  std::fflush(stdout);
  std::string answer;
  if (LineReader().Next(answer) != LineEvent::kLine) return false;
  return answer == "y" || answer == "Y" || answer == "yes";
}

Status RunRm(const RmOptions& options, std::span<const std::string> positionals) {
  if (positionals.empty()) return UsageError(kRmUsage, "a model's name is needed");
  const auto environment = artifact::ProcessEnvironment();
  std::vector<hub::LocalModel> models;
  for (const std::string& name : positionals) {  // all of them are there before one goes
    ASSIGN_OR_RETURN(hub::LocalModel model, hub::FindLocalModel(name, environment));
    models.push_back(std::move(model));
  }
  for (const hub::LocalModel& model : models) {
    if (!options.yes) {
      ASSIGN_OR_RETURN(const bool is_confirmed, IsConfirmed(model));
      if (!is_confirmed) return Cancelled(model.name + ": stays");
    }
    RETURN_IF_ERROR(hub::RemoveLocalModel(model, environment));
    fmt::print("removed {}, {}\n", model.name, SizeText(model.bytes));
  }
  return Status::Ok();
}

}  // namespace

std::string SizeText(uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1000 && unit + 1 < std::size(kUnits)) {
    value /= 1000;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

ModelForm FormOf(const std::filesystem::path& model) {
  const auto kind = builder::Detect(model);
  if (!kind.ok()) return {"unreadable", "-"};
  const bool is_gguf = *kind == builder::SourceKind::kGguf;
  std::string family = is_gguf ? GgufFamily(model) : ConfigFamily(model);
  if (family.empty()) family = "unreadable";
  switch (*kind) {
    case builder::SourceKind::kHuggingFace:
      return {family, "Hugging Face"};
    case builder::SourceKind::kGguf:
      return {family, "GGUF"};
    case builder::SourceKind::kCheckpoint:
      return {family, "checkpoint"};
    case builder::SourceKind::kEngine:
      break;
  }
  return {family, "engine"};
}

int ListMain(Args args) { return RunCommand(args, kListUsage, MakeListSchema(), RunList); }
Manual ListManual() { return {kListUsage, MakeListSchema().options()}; }

int RmMain(Args args) { return RunCommand(args, kRmUsage, MakeRmSchema(), RunRm); }
Manual RmManual() { return {kRmUsage, MakeRmSchema().options()}; }

}  // namespace inflight::tool
