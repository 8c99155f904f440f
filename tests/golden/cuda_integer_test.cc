// SPDX-License-Identifier: Apache-2.0
// A model of int8 or int4 weights on a GPU beside one that stores them widened to the model's
// dtype. Few tokens read the codes, so that the second one's weights differ by what rounding took
// away.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "artifact/safetensors.h"
#include "base/file.h"
#include "constants.h"
#include "golden_reference.h"
#include "paged_model.h"
#include "tensor/element.h"
#include "tensor/test_gpu.h"
#include "worse.h"

namespace inflight::golden {
namespace {

using artifact::StoredTensor;
using model::QuantAlgo;

constexpr char kScale[] = "per_channel_scale";

// Of a checkpoint's matrix: code times scale, rounded to the dtype of the scales.
std::vector<std::byte> Widened(const StoredTensor& codes, const StoredTensor& scales,
                               bool is_int4) {
  const int64_t width = codes.shape[1] * (is_int4 ? 2 : 1);
  std::vector<std::byte> out(static_cast<size_t>(codes.shape[0] * width) * SizeOf(scales.dtype));
  for (int64_t i = 0; i < codes.shape[0] * width; ++i) {
    const int code =
        is_int4 ? LoadInt4(codes.data.data(), i) : LoadAs<int8_t>(codes.data.data(), i);
    const float scale = LoadFloat(scales.data.data(), scales.dtype, i / width);
    StoreFloat(out.data(), scales.dtype, i, static_cast<float>(code) * scale);
  }
  return out;
}

// `from`, a quantised checkpoint, as one of widened weights.
void WriteWidened(const std::filesystem::path& from, const std::filesystem::path& to,
                  QuantAlgo algo) {
  const auto set = artifact::TensorSet::OpenFile(from / "rank0.safetensors");
  ASSERT_TRUE(set.ok()) << set.status().ToString();
  std::vector<artifact::TensorSpec> specs;
  std::vector<std::vector<std::byte>> values;
  for (const StoredTensor& tensor : set->tensors()) {
    if (tensor.name.ends_with(kScale)) continue;
    const std::string stem = tensor.name.substr(0, tensor.name.rfind('.') + 1);
    const StoredTensor* scales = tensor.dtype == DType::kI8 ? set->Find(stem + kScale) : nullptr;
    specs.push_back({tensor.name, tensor.dtype, tensor.shape});
    if (scales == nullptr) {
      values.emplace_back(tensor.data.begin(), tensor.data.end());
      continue;
    }
    const bool is_int4 = algo == QuantAlgo::kW4A16 && stem != "lm_head.";
    values.push_back(Widened(tensor, *scales, is_int4));
    specs.back().dtype = scales->dtype;
    if (is_int4) specs.back().shape = {tensor.shape[0], 2 * tensor.shape[1]};
  }
  std::filesystem::create_directories(to);
  auto writer = artifact::SafetensorsWriter::Create(to / "rank0.safetensors", specs);
  ASSERT_TRUE(writer.ok()) << writer.status().ToString();
  for (const auto& bytes : values) ASSERT_TRUE(writer->Append(bytes).ok());
  ASSERT_TRUE(writer->Finish().ok());
  auto config = nlohmann::json::parse(*ReadFile(from / "config.json"));
  config["quantization"] = {{"quant_algo", nullptr}};
  ASSERT_TRUE(WriteFile(to / "config.json", config.dump()).ok());
}

struct Case {
  const char* model;
  const char* dtype;
  QuantAlgo algo;
  bool has_head;  // of int8
  std::string name() const {
    return std::string(model) + "_" + dtype + "_" + std::string(QuantAlgoName(algo)) +
           (has_head ? "_head" : "");
  }
};

class CudaIntegerTest : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    NEED_TEST_GPU();
    dir_ = std::filesystem::path(testing::TempDir()) /
           ("cuda_integer_" + std::to_string(getpid()) + GetParam().name());
    std::filesystem::remove_all(dir_);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  // Logits of the whole of a prompt at once, then of 8 steps of one token.
  std::vector<std::vector<float>> Logits(const std::filesystem::path& checkpoint,
                                         const Expected& expected) {
    Device& device = *TestGpu().value();
    const auto engine = builder::Open(checkpoint, device, {.limits = std::nullopt});
    EXPECT_TRUE(engine.ok()) << engine.status().ToString();
    if (!engine.ok()) return {};
    const auto tables = ops::CudaOpTables(model::KernelShape((*engine)->config), device);
    PagedModel model(*engine, tables.front(), device, 1, kBlockSize);
    const auto step = [&](std::span<const TokenId> ids) {
      const Piece piece{0, ids};
      return model.Step({&piece, 1}, /*last_only=*/false);
    };
    std::vector<std::vector<float>> logits = step(expected.prompt);
    for (size_t i = 0; i < 8; ++i) logits.push_back(step({&expected.greedy[i], 1}).front());
    return logits;
  }

  std::filesystem::path dir_;
};

// Both models are rounded, each by what RoundingBound allows beside the float32 one.
TEST_P(CudaIntegerTest, LogitsAreNearThoseOfTheWidenedWeights) {
  const DType dtype = *DTypeFromName(GetParam().dtype);
  const std::filesystem::path model = DataDir() / GetParam().model;
  const Status converted = builder::Convert({.model_dir = model,
                                             .output_dir = dir_ / "integers",
                                             .dtype = GetParam().dtype,
                                             .quant_algo = GetParam().algo,
                                             .quantize_lm_head = GetParam().has_head});
  ASSERT_TRUE(converted.ok()) << converted.ToString();
  ASSERT_NO_FATAL_FAILURE(WriteWidened(dir_ / "integers", dir_ / "widened", GetParam().algo));
  for (const Expected& expected : ReadReference(model)) {
    const auto got = Logits(dir_ / "integers", expected);
    const auto want = Logits(dir_ / "widened", expected);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i].size(), want[i].size());
      float worst = 0;
      for (size_t j = 0; j < got[i].size(); ++j)
        worst = Worse(worst, std::abs(got[i][j] - want[i][j]));
      ASSERT_LE(worst, 2 * RoundingBound(dtype, expected)) << "position " << i;
    }
  }
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const char* model : {"llama_head64", "llama_head128", "gpt2_head64"})
    for (const char* dtype : {"float16", "bfloat16"})
      for (const QuantAlgo algo : {QuantAlgo::kW8A16, QuantAlgo::kW4A16})
        for (const bool has_head : {false, true})
          if (!has_head || std::string(model) == "llama_head64")  // others have a tied table
            cases.push_back({model, dtype, algo, has_head});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Models, CudaIntegerTest, testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name(); });

}  // namespace
}  // namespace inflight::golden
