// SPDX-License-Identifier: Apache-2.0
// The model families that are supported, by the names that files call them by.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "model/families/family.h"

namespace inflight::model {

std::span<const Family> Families();

// The family of an "architecture" in a checkpoint, its own name or another that upstream gives to
// the same graph; of an entry of "architectures" in Hugging Face's config.json; of a "model_type";
// of "general.architecture" in a GGUF file, with experts or without. Names of composites count too.
// Valid until the process ends. kUnimplemented lists what is supported.
Result<const Family*> FamilyOf(std::string_view architecture);
Result<const Family*> FamilyOfHuggingFace(std::string_view architecture);
Result<const Family*> FamilyOfModelType(std::string_view model_type);
Result<const Family*> FamilyOfGguf(std::string_view architecture, bool has_experts);

// Where config.json of a model of that name describes the family's part; empty: at its top.
std::string_view ConfigFieldOf(const Family& family, std::string_view name);

}  // namespace inflight::model
