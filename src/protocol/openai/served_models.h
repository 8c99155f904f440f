// SPDX-License-Identifier: Apache-2.0
// The models that clients of this front end may name. Adapters (LoRA) that have names are models,
// too: each of the first model of the list that has it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "inflight/status.h"
#include "serving/core/generation.h"
#include "serving/server/server.h"

namespace inflight::openai {

// A model under the name of a client's choice.
struct ModelAlias {
  std::string name;   // "Qwen/Qwen3-0.6B"
  std::string model;  // "ensemble"
};

struct ServedModel {
  std::string name;  // that the list has
  std::shared_ptr<serving::Model> model;
  std::shared_ptr<const serving::TextModel> text;           // never null
  std::string adapter = {};                                 // by name; "": the model itself
  std::string parent = {};                                  // of an adapter: the name of its model
  std::shared_ptr<const serving::FoundAdapter> found = {};  // of an adapter that was looked for
};

// Threads: all methods are thread-safe.
class ServedModels {
 public:
  // `server` outlives this.
  ServedModels(serving::Server& server, std::vector<ModelAlias> aliases)
      : server_(server), aliases_(std::move(aliases)) {}

  // Of each model that answers with texts its latest version; one that has aliases stands under
  // those alone.
  std::vector<ServedModel> List() const;
  std::vector<ServedModel> Adapters() const;  // of those; a name that a model has is left out
  // By an alias, by its own name, or an adapter's; empty: the only one that is no adapter.
  // kNotFound says which there are, without adapters.
  Result<ServedModel> Find(const std::string& name) const;

 private:
  serving::Server& server_;
  const std::vector<ModelAlias> aliases_;
};

}  // namespace inflight::openai
