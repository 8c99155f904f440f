// SPDX-License-Identifier: Apache-2.0
// Models in the local cache of the Hugging Face hub, found by their id. Nothing is downloaded.
//
//   CACHE/models--ORG--NAME/refs/REVISION         text: a commit
//                           snapshots/COMMIT/     the model's files, links into blobs/
//
// CACHE is $HF_HUB_CACHE, else $HUGGINGFACE_HUB_CACHE, else $HF_HOME/hub, else
// $XDG_CACHE_HOME/huggingface/hub, else ~/.cache/huggingface/hub.
// Source: https://huggingface.co/docs/huggingface_hub/guides/manage-cache and its page of
// environment variables.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "inflight/status.h"

namespace inflight::artifact {

// The value of an environment variable, empty where it is not set.
using Environment = std::function<std::string(const char* name)>;
Environment ProcessEnvironment();

// "org/name", "org/name:QUANT", "org/name@REVISION" or both of them in that order.
struct HubId {
  std::string org;
  std::string name;
  std::string quant;  // which GGUF file, as IsGgufOf has it; empty: not said
  std::string revision = "main";
  bool has_revision = false;

  std::string repo() const { return org + "/" + name; }
  std::string ToString() const;  // as it is written
};

// None where the text is no such id, by the hub's rules of names.
std::optional<HubId> ParseHubId(std::string_view text);

struct HubCache {
  std::filesystem::path dir;
  std::string why;  // the variable that chose it
};
HubCache FindHubCache(const Environment& environment);

// The folder of the model in the cache: "models--ORG--NAME".
std::filesystem::path HubModelFolder(const std::filesystem::path& cache, const HubId& id);

// Whether a file is the GGUF file of this quantisation: its name has QUANT as a part, in any letter
// case ("Model-Q4_K_M.gguf"), or is QUANT. Pictures' encoders (mmproj) are of none.
bool IsGgufOf(std::string_view file, std::string_view quant);
// Whether it is a part of several: "…-00001-of-00003.gguf".
bool IsGgufPart(std::string_view file);
bool IsLaterGgufPart(std::string_view file);  // but the first

// Models that were converted or built, by names of their own: $XDG_DATA_HOME/inflight/models, else
// ~/.local/share/inflight/models; empty where neither is known.
std::filesystem::path ModelsFolder(const Environment& environment);

// The directory that a user means by `argument`: the argument itself where something has that name
// or where it is no hub id; for "org/name" or "org/name@revision" (a branch, a tag or a commit;
// default: main) the snapshot in the cache, or the GGUF file in it where it is of one or a
// quantisation is said; for "name" that of the models' folder, where it is there. kNotFound says
// where it was looked for and how to download it, kInvalidArgument that several are meant.
Result<std::filesystem::path> ResolveModelDir(const std::filesystem::path& argument,
                                              const Environment& environment);
Result<std::filesystem::path> ResolveModelDir(const std::filesystem::path& argument);

}  // namespace inflight::artifact
