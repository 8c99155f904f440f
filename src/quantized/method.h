// SPDX-License-Identifier: Apache-2.0
// How the weights of a Hugging Face directory are quantised: what its configuration says about
// them, and from the tensors that stand for a weight the weight itself. A file here for each
// method.
//
// Errors name field or tensor, what was found and what is needed; kUnimplemented is what a method
// describes and is not supported.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "artifact/json_file.h"
#include "artifact/tensor_set.h"
#include "quantized/module.h"
#include "quantized/module_list.h"

namespace inflight::quantized {

class Method {
 public:
  virtual ~Method() = default;

  // "AWQ, int4 with zero points, groups of 128".
  virtual std::string Describe() const = 0;

  // The weight of a module; nothing where its weight is plain, or it has none. What is packed of a
  // module that the configuration leaves alone, and what is packed in another way than it says, is
  // an error.
  Result<std::optional<Weight>> WeightOf(const Module& module) const;

  // What stands between the names of a module and of its tensors.
  virtual char Separator() const { return '.'; }

  // The ends of names of the tensors that stand for a weight or belong to one.
  virtual std::vector<std::string_view> Parts() const = 0;

  // Modules that it leaves alone.
  ModuleList ignored;

 protected:
  // Whether a tensor of the module is packed.
  virtual bool IsPacked(const Module& module) const = 0;
  // Of one that is.
  virtual Result<Weight> Unpack(const Module& module) const = 0;
};

// `quantization` is the object in config.json, of "quant_method".
Result<std::shared_ptr<const Method>> ReadMethod(const nlohmann::json& quantization,
                                                 const std::string& where);
// The same of ModelOpt's hf_quant_config.json; the method's name is kModelOpt.
inline constexpr std::string_view kModelOpt = "modelopt";
Result<std::shared_ptr<const Method>> ReadModelOptFile(const nlohmann::json& object,
                                                       const std::string& where);

// Of "quantization" in the config.json of a checkpoint of TensorRT-LLM, if its weights stand for
// numbers by other rules than those of the forms that this project writes (upstream_checkpoint.cc);
// null if not. `is_in_own_layout`: int4 lies as this project writes it, not as upstream does.
Result<std::shared_ptr<const Method>> ReadCheckpointMethod(const nlohmann::json& quantization,
                                                           bool is_in_own_layout,
                                                           const std::string& where);

// The methods by their "quant_method", and what each packs.
struct MethodFacts {
  std::string_view name;
  bool is_of_stacked_experts = false;  // matrices of which one tensor holds all experts', alone
};
std::vector<MethodFacts> Methods();

// One file each.
Result<std::shared_ptr<const Method>> ReadAwq(artifact::JsonFields& fields);
Result<std::shared_ptr<const Method>> ReadGptq(artifact::JsonFields& fields);
Result<std::shared_ptr<const Method>> ReadCompressedTensors(artifact::JsonFields& fields);
Result<std::shared_ptr<const Method>> ReadFp8(artifact::JsonFields& fields);
Result<std::shared_ptr<const Method>> ReadModelOpt(artifact::JsonFields& fields);
Result<std::shared_ptr<const Method>> ReadMxfp4(artifact::JsonFields& fields);

// "FIELD: got VALUE, WHY" of a file, kUnimplemented.
Status NotSupported(const artifact::JsonFields& fields, std::string_view field,
                    std::string_view why);

// Rows and columns of a block, as a list of two; nothing where the field is absent. Another value
// is an error of the fields.
struct BlockSize {
  int64_t rows = 0, columns = 0;
};
std::optional<BlockSize> ReadBlockSize(artifact::JsonFields& fields, std::string_view field);

struct Unpacked {
  int num_weights = 0;
  std::unordered_map<std::string, NativeForm> native;  // by the name of the weight
  // What activations are divided by before they are rounded, of weights whose file has one such
  // scale; likewise.
  std::unordered_map<std::string, float> activation_scales;
};

// Puts every weight that is packed in place of the tensors that stand for it.
Result<Unpacked> UnpackAll(const Method& method, artifact::TensorSet& tensors);

}  // namespace inflight::quantized
