// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "artifact/checkpoint.h"
#include "artifact/json_file.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "builder/builder.h"
#include "builder/tensorrt_engine.h"
#include "gguf/file.h"

namespace inflight::builder {

Result<SourceKind> Detect(const std::filesystem::path& dir) {
  const std::filesystem::path path = dir / artifact::kConfigFile;
  if (!FileExists(dir)) return NotFound(fmt::format("{}: no such directory", dir.string()));
  if (gguf::IsGgufFile(dir)) return SourceKind::kGguf;
  if (std::error_code error; std::filesystem::is_regular_file(dir, error))
    return InvalidArgument(
        fmt::format("{}: is a file; a Hugging Face directory, a checkpoint, an engine directory "
                    "or a .gguf file is needed",
                    dir.string()));
  if (!FileExists(path) && FileExists(dir / "config.ini"))
    return Unimplemented(fmt::format(
        "{}: weights as releases before 0.8 converted them (config.ini and .bin arrays) "
        "are not read; convert the Hugging Face model again with `inflight convert`",
        dir.string()));
  if (!FileExists(path))
    return NotFound(
        fmt::format("{}: no config.json; a Hugging Face directory, a checkpoint, an engine "
                    "directory or a .gguf file is needed",
                    dir.string()));
  ASSIGN_OR_RETURN(const nlohmann::json json, artifact::ReadJsonFile(path));
  if (json.contains("pretrained_config")) return SourceKind::kEngine;
  if (json.contains("architecture")) return SourceKind::kCheckpoint;
  if (json.contains("architectures") || json.contains("model_type"))
    return SourceKind::kHuggingFace;
  RETURN_IF_ERROR(RefuseTensorRtEngine(dir));
  if (json.contains("builder_config"))
    return Unimplemented(
        fmt::format("{}: an engine of a release before 0.8 cannot be read; build "
                    "one from its checkpoint with `inflight build`",
                    path.string()));
  return InvalidArgument(fmt::format(
      "{}: neither pretrained_config (engine), architecture (checkpoint) nor architectures or "
      "model_type (Hugging Face) is in it",
      path.string()));
}

}  // namespace inflight::builder
