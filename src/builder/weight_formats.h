// SPDX-License-Identifier: Apache-2.0
// The formats that weights come in or are given, and which family has which of them on which
// backend. CheckFormat asks what opening a model asks, with a small model in place of a file;
// `inflight families` prints what it says, and the table of docs/models.md is made of that.
#pragma once

#include <string_view>
#include <vector>

#include "inflight/status.h"
#include "model/families/family.h"
#include "tensor/device.h"

namespace inflight::builder {

// What names a format: --dtype, --quant-algo, "quant_method" of a Hugging Face directory, or that
// the model is a GGUF file.
enum class FormatField : uint8_t { kDType, kQuantAlgo, kQuantMethod, kGguf };
std::string_view FormatFieldName(FormatField field);  // "quant_algo"

struct WeightFormat {
  FormatField field = FormatField::kDType;
  std::string_view name;                            // "bfloat16", "W8A16", "awq", "GGUF"
  DType dtype = DType::kBF16;                       // of the model
  model::QuantAlgo algo = model::QuantAlgo::kNone;  // that is asked for
};
std::vector<WeightFormat> WeightFormats();

// kUnimplemented has the words by which a model of the family is refused, or a file of the format.
Status CheckFormat(const model::Family& family, const WeightFormat& format, DeviceKind device);

// Whether a family's weights may be packed by a method of quantized/method.h.
Status CheckQuantMethod(const model::Family& family, std::string_view method);

}  // namespace inflight::builder
