// SPDX-License-Identifier: Apache-2.0
// What lies where in a model repository: models, versions, engines.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "inflight/status.h"
#include "model_config.pb.h"

namespace inflight::serving {

inline constexpr char kConfigFile[] = "config.pbtxt";

// Names come from clients and become paths: kInvalidArgument for blank ones and for those that lead
// elsewhere.
Status CheckModelName(const std::string& name);

bool Exists(const std::filesystem::path& path);

// configs/<name>.pbtxt of a model's directory where a name is asked for and has one, else
// config.pbtxt.
std::filesystem::path ConfigFile(const std::filesystem::path& model_dir, const std::string& name);

// Sorted; without those whose name begins with a dot, which hold other programs' things.
std::vector<std::filesystem::path> Subdirectories(const std::filesystem::path& dir);

// `dir` if a subdirectory of it holds a config.pbtxt, or its only subdirectory if that is so there.
std::optional<std::filesystem::path> FindRepository(const std::filesystem::path& dir);

// Versions of the model in `dir` that its version policy serves, ascending. Version directories are
// positive integers without a leading zero.
std::vector<std::string> SelectVersions(const ::inference::ModelConfig& config,
                                        const std::filesystem::path& dir);

// The directory of the lowest version.
std::optional<std::filesystem::path> FirstVersion(const std::filesystem::path& model_dir);

// A path of a configuration: as it is if that exists, else relative to the model's directory or to
// the repository that holds it, whichever has it.
std::filesystem::path ResolvePath(const std::filesystem::path& path,
                                  const std::filesystem::path& model_dir);

// The directory of an engine: `dir`, or the only sub-directory of it that holds one.
std::filesystem::path EnginePlace(const std::filesystem::path& dir);

// The same of what the configuration names, or of the version's. kNotFound names what was looked
// at.
Result<std::filesystem::path> FindEngine(const std::filesystem::path& dir, bool is_named);

// `dir`, or the only sub-directory that has tokenizer files when it has none itself.
std::filesystem::path FindTokenizer(const std::filesystem::path& dir);
bool HasTokenizer(const std::filesystem::path& dir);

// When the newest file or directory of the model in `dir` was changed.
std::filesystem::file_time_type NewestChange(const std::filesystem::path& dir);

// When each file of the model in `dir` was changed, by its path; without its configurations, and
// without those whose name begins with a dot.
using FileTimes = std::map<std::filesystem::path, std::filesystem::file_time_type>;
FileTimes DataFiles(const std::filesystem::path& dir);

}  // namespace inflight::serving
