// SPDX-License-Identifier: Apache-2.0
// Lists of modules that a quantisation names: those that it leaves alone, or those that a scheme is
// for. A module is a stored tensor's name without its last part: "model.layers.0.mlp.gate_proj".
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "artifact/json_file.h"

namespace inflight::quantized {

// How an entry stands for modules.
enum class ListSyntax {
  // A regular expression of the module's beginning, up to a point or the end, or the plain text of
  // its end: should_convert_module of
  // huggingface/transformers/src/transformers/quantizers/quantizers_utils.py.
  kTransformers,
  // The module's name, the class Linear, or "re:" and a regular expression of its beginning:
  // match_name of vllm-project/compressed-tensors/src/compressed_tensors/utils/match.py.
  kCompressedTensors,
  // The module's name or one of those above it, with * and ? as of file names (ModelOpt).
  kWildcards,
};

class ModuleList {
 public:
  ModuleList() = default;

  // The list of texts in `field`; none where it is absent. A field of another kind, and an
  // expression that cannot be read, are errors of the fields.
  static ModuleList Read(artifact::JsonFields& fields, std::string_view field, ListSyntax syntax);

  bool empty() const { return entries_.empty(); }
  // Null where no entry stands for the module, else the entry.
  const std::string* Find(std::string_view module) const;
  const std::string& field() const { return field_; }

 private:
  class Pattern;
  struct Entry {
    std::string text;
    std::string end;                         // that a module may have; not of those that are empty
    bool is_all = false;                     // stands for every module
    std::shared_ptr<const Pattern> pattern;  // null: the text itself
  };
  Status Add(std::string text, ListSyntax syntax);

  std::string field_;
  std::vector<Entry> entries_;
};

}  // namespace inflight::quantized
